"""An executor in the style of smolagents: called with code, it keeps variables between calls.

A Python process waits inside the sandbox for one line of JSON per step and answers with one; so state stays in memory,
as an agent that writes code step by step expects, and nothing of it is in this process.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from belljar import Belljar, Sandbox

LOOP = r"""
import contextlib, io, json, sys, traceback
names = {}
for line in sys.stdin:
    step = json.loads(line)
    names.update(step["variables"])
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(step["code"], "<step>", "exec"), names)
        except BaseException:
            error = traceback.format_exc(limit=1)
    output = names.pop("final_answer", None)
    print(json.dumps({"logs": printed.getvalue(), "error": error, "output": output}), flush=True)
"""


class SandboxExecutor:
    """`executor(code)` gives what was printed, and the value of `final_answer` where the code sets it."""

    def __init__(self, sandbox: Sandbox) -> None:
        sandbox.files.write("/tmp/loop.py", LOOP)
        self._process = sandbox.start(["python3", "-u", "/tmp/loop.py"], stdin=True, timeout=0)
        self._output = self._process.output(channels=["stdout"])
        self._left = b""
        self._variables: dict[str, Any] = {}

    def send_variables(self, variables: dict[str, Any]) -> None:
        self._variables.update(variables)

    def __call__(self, code: str) -> tuple[Any, str]:
        step, self._variables = {"code": code, "variables": self._variables}, {}
        self._process.stdin.write(json.dumps(step) + "\n")
        while b"\n" not in self._left:
            self._left += next(self._output).data
        line, self._left = self._left.split(b"\n", 1)
        answer = json.loads(line)
        if answer["error"]:
            raise RuntimeError(answer["error"])
        return answer["output"], answer["logs"]

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.cancel()


with Belljar() as client, client.sandboxes.create() as sandbox, SandboxExecutor(sandbox) as executor:
    executor.send_variables({"numbers": [3, 1, 2]})
    executor("ordered = sorted(numbers)\nprint('sorted')")
    output, logs = executor("print(ordered)\nfinal_answer = ordered[-1]")
    print(logs, output)
    try:
        executor("1 / 0")
    except RuntimeError as error:
        print("an error comes back:", str(error).strip().splitlines()[-1])
