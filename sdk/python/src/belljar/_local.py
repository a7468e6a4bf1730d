"""The server of this machine: the program that starts it, and where it listens.

Looking for a server and starting one is the program's own business (`belljar server start`), so that however many
clients and commands begin at once, one server is started.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from typing import Any

from belljar._address import Address, parse
from belljar._generated import codes
from belljar._generated.codes import BY_CODE, ServerUnreachable

# A server first finishes what its predecessor left half done.
START_TIMEOUT = 90

# They say where a client finds a server; this one is to be started.
CLIENT_VARIABLES = ("BELLJAR_SERVER", "BELLJAR_API_KEY")


def find_binary(given: str | os.PathLike[str] | None = None) -> str:
    """The program `belljar`: as given, as `BELLJAR_BINARY` says, as installed with this package, or in the PATH."""
    chosen = os.fspath(given) if given else os.environ.get("BELLJAR_BINARY")
    if chosen:
        return chosen
    name = "belljar"
    installed = os.path.join(sysconfig.get_path("scripts"), name)
    if os.access(installed, os.X_OK):
        return installed
    found = shutil.which(name)
    if found:
        return found
    raise ServerUnreachable(
        "the program `belljar` is not on this machine, so no local server can be found or started",
        remedy="install it, name it with `binary=` or BELLJAR_BINARY, or give `url=` for a server elsewhere",
    )


def start(binary: str | os.PathLike[str] | None, state_dir: str | os.PathLike[str] | None) -> Address:
    """Makes sure that a server runs, and tells where."""
    command = [find_binary(binary), "server", "start", "--json"]
    if state_dir is not None:
        command += ["--state-dir", os.path.abspath(state_dir)]
    environment = {name: value for name, value in os.environ.items() if name not in CLIENT_VARIABLES}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnreachable(f"`{command[0]}` could not start a server", cause=str(error)) from error
    if ended.returncode == 0:
        return _address(json.loads(ended.stdout))
    raise _failure(ended.stdout, ended.stderr)


def _address(server: Any) -> Address:
    addresses = [str(address) for address in server["addresses"]]
    # Its socket needs no key: the kernel tells who asks.
    addresses.sort(key=lambda address: not address.startswith("unix:"))
    return parse(addresses[0])


def _failure(stdout: bytes, stderr: bytes) -> Exception:
    try:
        words = json.loads(stdout)["error"]
        kind = BY_CODE.get(words["code"], codes.Internal)
        return kind(words["message"], cause=words.get("cause") or "", remedy=words.get("remedy") or "")
    except (ValueError, KeyError, TypeError):
        return ServerUnreachable("no server could be started", cause=stderr.decode(errors="replace").strip())
