"""The network of sandboxes, in an internet of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "network"


@pytest.fixture(scope="module")
def told(binary: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the scenario tells, in the order of its steps."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "unshare", "nsenter")):
        pytest.skip("a network namespace needs root, iproute2 and util-linux")
    from .conftest import fresh_state

    with fresh_state() as state:
        environment = {
            **os.environ,
            "BELLJAR_BINARY": binary,
            "BELLJAR_STATE_DIR": str(state),
            "BELLJAR_DNS_UPSTREAM": "11.0.0.53",
        }
        command: list[str | Path] = [HERE / "world.sh", sys.executable, sys.executable, HERE / "scenario.py"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.parametrize("step", ["rules", "packages"])
def test_a_step(told: str, step: str) -> None:
    assert step in told.splitlines()
