"""Every example runs as it is, and tells what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
TELLS = {
    "quickstart.py": ["hello from", "10", "no way out"],
    "processes.py": ["stdout step 3", "you said goodbye"],
    "files.py": ["fine", "file source/report.py"],
    "asynchronous.py": ["285"],
    "function_calling.py": ["The sum is 5050."],
    "langchain_tool.py": ["run_python", str(2**100), "kept"],
    "decisions.py": ["tracker.example deny callback-denies not on the list"],
    "agent_inside.py": ["There are: agent.py notes.txt", "0 traces of the key"],
    "agent_with_key.py": ["It has 3 lines.", "0 traces of the key"],
    "snapshots.py": ["the state of things\nattempt one\nthe state of things\nattempt two\n0 snapshots left"],
    "ports.py": ["Serving HTTP on 127.0.0.1", "from inside"],
    "policy.py": ["allowed\nno-removal - move it away instead"],
    "provider.py": ["completed 45", "destroyed"],
    "smolagents_executor.py": ["[1, 2, 3]", "ZeroDivisionError"],
}


def test_every_example_is_known() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(TELLS)


@pytest.mark.parametrize("name", sorted(TELLS))
def test_an_example(name: str, binary: str, shared_state: Path) -> None:
    environment = {**os.environ, "BELLJAR_BINARY": binary, "BELLJAR_STATE_DIR": str(shared_state)}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], env=environment, capture_output=True, text=True, timeout=200
    )
    if "no address but loopback" in done.stderr:
        pytest.skip("the example's model needs an address of this machine besides loopback")
    assert done.returncode == 0, done.stdout + done.stderr
    for text in TELLS[name]:
        assert text in done.stdout, done.stdout
