"""Functions of the host that this sandbox may call.

    from belljar_tools import call, list_tools
    total = call("add", a=1, b=2)

Results are plain values as JSON has them. A call that is refused or fails raises ToolError, whose `code` is stable.
"""

import json
import os
import socket

__all__ = ["ToolError", "call", "list_tools"]

_SOCKET = os.environ.get("BELLJAR_TOOL_SOCKET", "/run/belljar/service/tools.sock")


class ToolError(Exception):
    """Why a call gave no result."""

    def __init__(self, code, message):
        super().__init__("%s (%s)" % (message, code))
        self.code = code
        self.message = message


def call(name, arguments=None, **more):
    """Calls a tool with one mapping of arguments, with named ones, or both."""
    whole = dict(arguments or {}, **more)
    return _ask("call %s %s" % (name, json.dumps(whole, separators=(",", ":"))))


def list_tools():
    """The tools there are now: name, description and input_schema of each."""
    return _ask("list")


def _ask(line):
    if "\n" in line:
        raise ToolError("invalid-argument", "a name has no line feed")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            agent.connect(_SOCKET)
            try:
                agent.sendall(line.encode() + b"\n")
            except BrokenPipeError:
                pass  # told no before all was said; the answer is there
            answer = _read(agent)
    except OSError as error:
        raise ToolError("tool-unavailable", "tools cannot be called: %s" % error) from error
    word, _, rest = answer.partition(b" ")
    if word == b"ok":
        return json.loads(rest)
    code, _, message = rest.decode("utf-8", "replace").partition(" ")
    raise ToolError(code, message.rstrip("\n"))


def _read(agent):
    pieces = []
    while True:
        try:
            piece = agent.recv(65536)
        except ConnectionResetError:
            piece = b""
        pieces.append(piece)
        if piece.endswith(b"\n"):
            return b"".join(pieces)
        if not piece:
            raise OSError("the answer broke off")
