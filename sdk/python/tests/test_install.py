"""The package as somebody installs it: into an environment of its own, without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
QUICK_START = HERE / "examples" / "quickstart.py"


def call(*command: str | Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("BELLJAR_BINARY", "PYTHONPATH")}
    done = subprocess.run(command, capture_output=True, text=True, env={**kept, **environment}, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the package and what it needs, from wheels only."""
    directory = tmp_path_factory.mktemp("venv")
    call(sys.executable, "-m", "venv", directory)
    pip = directory / "bin" / "pip"
    if subprocess.run([pip, "download", "--quiet", "--no-deps", "-d", directory, "typing-extensions"]).returncode:
        pytest.skip("there is no package index")
    # A compiler that fails: whoever needs one is found out.
    call(pip, "install", "--quiet", "--disable-pip-version-check", HERE, CC="false", CXX="false")
    return directory


def test_the_source_installs_and_works(environment: Path, binary: str, own_state: Path) -> None:
    told = call(
        environment / "bin" / "python", QUICK_START, BELLJAR_BINARY=binary, BELLJAR_STATE_DIR=str(own_state), CC="false"
    )
    assert "hello" in told
    typed = environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "belljar" / "py.typed"
    assert typed.exists()


def test_a_wheel_with_the_program_is_the_whole_installation(
    environment: Path, binary: str, own_state: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    if not shutil.which("strip") or subprocess.run(["strip", "-o", program, binary]).returncode:
        shutil.copy(binary, program)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    call(*build, "--no-build-isolation", "--wheel-dir", tmp_path, HERE, BELLJAR_WHEEL_BINARY=str(program))
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-manylinux_2_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith(".data/scripts/belljar") for name in archive.namelist())
    python = environment / "bin" / "python"
    call(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--force-reinstall",
        wheel,
    )
    assert "belljar" in call(environment / "bin" / "belljar", "--version")
    # Found beside Python, although no PATH leads there.
    told = call(python, QUICK_START, PATH="/usr/bin:/bin", BELLJAR_STATE_DIR=str(own_state))
    assert "hello" in told
