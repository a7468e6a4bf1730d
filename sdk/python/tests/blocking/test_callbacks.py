# Made from tests/asynchronous/test_callbacks.py by mirror.py; change that one.
"""Functions of this process that answer for a sandbox."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from belljar import Belljar, errors


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


def test_a_name_is_answered_for_by_one_client_until_it_is_gone(shared_state: Path) -> None:
    with Belljar(state_dir=shared_state) as client:
        with client.sandboxes.create(tools={"add": add}) as sandbox:
            with Belljar(state_dir=shared_state) as other:
                again = other.sandboxes.get(sandbox.id)
                with pytest.raises(errors.CallbackExists):
                    again.serve(tools=[add])
                # Another name is free.
                again.serve(tools={"plus": add})
            # The server hears of its end before long.
            deadline = time.monotonic() + 10
            while "plus" not in sandbox.tools:
                try:
                    sandbox.serve(tools={"plus": add})
                except errors.CallbackExists:
                    assert time.monotonic() < deadline
            # What was refused is not offered, what was agreed on is offered still.
            with pytest.raises(errors.InvalidName):
                sandbox.serve(tools={"not a name": add})
            sandbox.serve(tools={"minus": add})
            assert sandbox.tools == ["add", "plus", "minus"]


def test_offers_are_made_again_to_the_next_server(own_state: Path) -> None:
    with Belljar(state_dir=own_state) as client, Belljar(state_dir=own_state) as other:
        sandbox = client.sandboxes.create(tools={"add": add})
        os.kill((client.server()).pid, signal.SIGKILL)
        # Whoever comes first has the name; the one that had it comes back by itself.
        sandbox.run("true")
        sandbox.serve(tools={"plus": add})
        with pytest.raises(errors.CallbackExists):
            (other.sandboxes.get(sandbox.id)).serve(tools={"add": add})
        sandbox.destroy()


def test_what_cannot_be_offered_leaves_no_sandbox_behind(client: Belljar) -> None:
    with pytest.raises(errors.InvalidName):
        client.sandboxes.create(tools={"not a name": add}, labels={"for": "nothing"})
    assert client.sandboxes.list(labels={"for": "nothing"}) == []
