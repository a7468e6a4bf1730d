"""What needs no server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from belljar import Decision, _address, _requests, errors
from belljar._failure import of_problem
from belljar._generated import api, methods
from belljar._generated.codes import BY_CODE
from belljar._method import Method

HERE = Path(__file__).parent.parent


def test_addresses() -> None:
    assert _address.parse("unix:/run/x.sock").socket == "/run/x.sock"
    assert _address.parse("unix:///run/x.sock").socket == "/run/x.sock"
    assert _address.parse("/run/x.sock").target == "unix:/run/x.sock"
    assert _address.parse("http://127.0.0.1:7070").target == "dns:///127.0.0.1:7070"
    assert _address.parse("https://sandboxes.example") == _address.Address("dns:///sandboxes.example:443", tls=True)
    assert _address.parse("http://[::1]:7070").target == "dns:///[::1]:7070"
    for wrong in ("", "unix:", "ftp://x", "http://", "host:80"):
        with pytest.raises(errors.InvalidArgument):
            _address.parse(wrong)


def test_sizes() -> None:
    assert _requests.size("memory", 7) == 7
    assert _requests.size("memory", "512M") == _requests.size("memory", "512 MiB") == 512 << 20
    assert _requests.size("memory", "1.5g") == 3 << 29
    for wrong in ("", "x", "-1", "1 Q"):
        with pytest.raises(errors.InvalidLimit, match="disk"):
            _requests.size("disk", wrong)


def test_every_code_has_a_class() -> None:
    for code, kind in BY_CODE.items():
        error = of_problem(api.Problem(code=code, message="m", cause="c", remedy="r"))
        assert type(error) is kind
        assert (error.code, error.message, error.cause, error.remedy) == (code, "m", "c", "r")
        assert str(error) == "m; caused by: c; hint: r"
    decision = api.PolicyDecision(verdict="deny", rule="no-shell", message="not here", digest="d")
    refused = of_problem(api.Problem(code="policy-denied", message="m", decision=decision))
    assert isinstance(refused, errors.PolicyDenied)
    assert refused.rule == "no-shell"
    assert refused.decision == Decision("deny", "no-shell", "not here", "d")
    assert "new-code" in str(of_problem(api.Problem(code="new-code", message="m")))


def test_everything_that_the_server_does_is_there() -> None:
    source = "".join(path.read_text() for path in (HERE / "src/belljar/_async").glob("*.py"))
    missing = {name for name, value in vars(methods).items() if isinstance(value, Method)} - {
        name for name in vars(methods) if re.search(rf"\bmethods\.{name}\b", source)
    }
    # `run` creates, runs and cleans up for the command line; here that is a sandbox in a `with` block. Output is
    # followed by the process, which can be found again.
    assert missing == {"RUN", "EXEC_STREAM"}


def test_what_is_made_from_something_else_is_fresh() -> None:
    pytest.importorskip("ruff")
    for script in ("mirror.py", "reference.py"):
        checked = subprocess.run([sys.executable, script, "--check"], cwd=HERE, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
