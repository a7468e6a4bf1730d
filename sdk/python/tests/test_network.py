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
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "unshare", "nsenter", "openssl")):
        pytest.skip("a network namespace needs root, iproute2, util-linux and openssl")
    from .conftest import fresh_state

    made = tmp_path_factory.mktemp("certificate")
    certificate, key = made / "certificate.pem", made / "key.pem"
    words = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test"]
    names += ["-addext", "basicConstraints=critical,CA:FALSE"]
    made_by: list[str | Path] = ["openssl", "req", *words, *names, "-keyout", key, "-out", certificate]
    subprocess.run(made_by, check=True, capture_output=True, timeout=60)
    told = ""
    # Each in a world and with a server of its own.
    for scenario in ("scenario.py", "decisions.py"):
        with fresh_state() as state:
            environment = {
                **os.environ,
                "BELLJAR_BINARY": binary,
                "BELLJAR_STATE_DIR": str(state),
                "BELLJAR_DNS_UPSTREAM": "11.0.0.53",
                "BELLJAR_TLS_ROOTS": str(certificate),
                "TEST_CERTIFICATE": str(certificate),
                "TEST_KEY": str(key),
            }
            command: list[str | Path] = [HERE / "world.sh", sys.executable, sys.executable, HERE / scenario]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
            assert done.returncode == 0, done.stdout + done.stderr
            told += done.stdout
    return told


@pytest.mark.parametrize(
    "step",
    ["rules", "packages", "decided", "datagrams", "shown", "asynchronous", "approved", "gone", "given", "refused"],
)
def test_a_step(told: str, step: str) -> None:
    assert step in told.splitlines()
