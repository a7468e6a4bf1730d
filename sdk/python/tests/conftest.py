"""A server of its own for the tests, in a state directory that goes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARY = os.environ.get("BELLJAR_TEST_BIN") or os.environ.get("BELLJAR_BINARY") or shutil.which("belljar")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not BINARY:
            item.add_marker(pytest.mark.skip(reason="there is no `belljar`; name it with BELLJAR_TEST_BIN"))


@contextmanager
def fresh_state() -> Iterator[Path]:
    """A state directory; what was made in it is destroyed at the end, and its server stopped."""
    directory = Path(tempfile.mkdtemp(prefix="belljar-python-"))
    try:
        yield directory
    finally:
        assert BINARY
        for command in (["destroy", "--all"], ["server", "stop"]):
            subprocess.run([BINARY, "--state-dir", directory, *command], check=True, capture_output=True, timeout=90)
        shutil.rmtree(directory)


@pytest.fixture(scope="session", autouse=True)
def binary() -> Iterator[str]:
    """What starts the servers of all tests."""
    environment = pytest.MonkeyPatch()
    for name in ("BELLJAR_SERVER", "BELLJAR_API_KEY", "BELLJAR_STATE_DIR"):
        environment.delenv(name, raising=False)
    environment.setenv("BELLJAR_BINARY", BINARY or "belljar")
    yield BINARY or "belljar"
    environment.undo()


@pytest.fixture(scope="session")
def shared_state(binary: str) -> Iterator[Path]:
    """One for all tests that disturb nobody."""
    with fresh_state() as directory:
        yield directory


@pytest.fixture
def own_state(binary: str) -> Iterator[Path]:
    """One for a test that disturbs its server."""
    with fresh_state() as directory:
        yield directory


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of this machine's loopback, which only who is told of it trusts, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl to make a certificate")
    made = tmp_path_factory.mktemp("tls")
    certificate, key = made / "certificate.pem", made / "key.pem"
    words = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    made_by: list[str | Path] = ["openssl", "req", *words, *names, "-keyout", key, "-out", certificate]
    subprocess.run(made_by, check=True, capture_output=True, timeout=60)
    return certificate, key
