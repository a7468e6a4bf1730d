# Made from tests/asynchronous/test_tools.py by mirror.py; change that one.
"""Functions of this process, called by code inside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from belljar import Belljar

from ..toolbox import POLICY, Point, add, call, fail, fetch


def test_functions_are_called_with_what_their_hints_say(client: Belljar) -> None:
    with client.sandboxes.create(policy=POLICY, tools=[add, fetch, fail]) as sandbox:
        assert (sandbox.run_python(call("add", a=2, b=3))).stdout == "5\n"
        assert (sandbox.run_python(call("add", a=2))).stdout == "3\n"
        # It runs here, not inside.
        assert str(os.getpid()) in (sandbox.run_python(call("fetch", key="k"))).stdout
        assert "KeyError" in (sandbox.run_python(call("fail"))).stdout
        assert "refused" in (sandbox.run_python(call("add", a="two"))).stdout

        @sandbox.tool(name="move", description="Moves a point.")
        def shifted(point: Point, by: int = 1) -> Point:
            return Point(point.x + by, point.y + by)

        moved = sandbox.run_python(call("move", point={"x": 1, "y": 2}, by=2))
        assert moved.stdout == "{'x': 3, 'y': 4}\n"


def test_only_what_the_policy_names_exists_inside(client: Belljar) -> None:
    with client.sandboxes.create(policy=POLICY, tools={"add": add, "hidden": add}) as sandbox:
        listed = (sandbox.run("belljar-tool list")).stdout
        assert "Adds two numbers." in listed
        assert "hidden" not in listed
        assert "refused" in (sandbox.run_python(call("hidden", a=1))).stdout
    with client.sandboxes.create(tools={"add": add}) as sandbox:
        assert "2" not in (sandbox.run_python(call("add", a=1))).stdout.split()


def test_tools_are_there_again_after_the_server_was_killed(own_state: Path) -> None:
    with Belljar(state_dir=own_state) as client:
        with client.sandboxes.create(policy=POLICY, tools={"add": add}) as sandbox:
            assert (sandbox.run_python(call("add", a=1))).stdout == "2\n"
            os.kill((client.server()).pid, signal.SIGKILL)
            # The offer is made to the next server as soon as it is there.
            result = sandbox.run_python(call("add", patient=True, a=1))
            assert result.stdout == "2\n", result.stderr
