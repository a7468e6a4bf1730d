"""What the pages promise first is true: their first program runs as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
PAGES = {
    "README.md": ["4\n"],
    "sdk/python/README.md": ["hello", "a,b\n1,2"],
    "docs/guides/python.md": ["hello", "42"],
}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_first_program_of_a_page(page: str, binary: str, shared_state: Path) -> None:
    program = re.search(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert program
    environment = {**os.environ, "BELLJAR_BINARY": binary, "BELLJAR_STATE_DIR": str(shared_state)}
    command = [sys.executable, "-c", program[1]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for text in PAGES[page]:
        assert text in done.stdout
