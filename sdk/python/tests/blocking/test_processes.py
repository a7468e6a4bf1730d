# Made from tests/asynchronous/test_processes.py by mirror.py; change that one.
"""Processes that go on by themselves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from belljar import Belljar, Offsets, Sandbox, errors


def test_output_comes_as_it_is_written(sandbox: Sandbox) -> None:
    process = sandbox.start("echo ready; read line; echo got $line; echo bad >&2", stdin=True)
    output = process.output()
    first = output.__next__()
    assert (first.channel, first.offset, first.text) == ("stdout", 0, "ready\n")
    assert not (process.refresh()).ended
    assert process.stdin.write("word\n") == 5
    rest = [(piece.channel, piece.offset, piece.data) for piece in output]
    assert sorted(rest) == [("stderr", 0, b"bad\n"), ("stdout", 6, b"got word\n")]
    assert process.info.status == "succeeded"
    assert process.info.exit_code == 0
    with pytest.raises(errors.ProcessEnded):
        process.signal(signal.SIGTERM)


def test_logs_go_on_where_they_ended(sandbox: Sandbox) -> None:
    process = sandbox.start("echo one; read line; echo two", stdin=True)
    for _ in process:
        break
    logs = process.logs()
    assert (logs.stdout, logs.end) == ("one\n", Offsets(4, 0))
    process.stdin.write("\n")
    process.wait(20)
    assert (process.logs(since=logs.end)).stdout == "two\n"
    assert (process.logs()).stdout == "one\ntwo\n"
    assert (process.result()).stdout == "one\ntwo\n"
    only = [piece for piece in process.output(channels=["stderr"])]
    assert only == []


def test_closing_the_input_is_seen(sandbox: Sandbox) -> None:
    process = sandbox.start("wc -c", stdin=True)
    assert process.stdin.write(b"x" * 200_000) == 200_000
    process.stdin.close()
    assert (process.result(20)).stdout.strip() == "200000"


def test_wait_has_a_limit_and_cancel_ends(sandbox: Sandbox) -> None:
    process = sandbox.start("sleep 100", timeout=0)
    with pytest.raises(errors.TimedOut):
        process.wait(0.05)
    assert (process.cancel(1)).status == "cancelled"
    assert (process.wait(20)).reason == "cancelled"
    with pytest.raises(errors.CommandCancelled):
        (process.result()).check()


def test_signals_arrive(sandbox: Sandbox) -> None:
    process = sandbox.start("trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
    for _ in process:
        break
    process.signal(signal.SIGUSR1)
    assert (process.wait(20)).exit_code == 9
    assert "caught" in (process.logs()).stdout


def test_a_terminal_has_the_size_it_is_given(sandbox: Sandbox) -> None:
    process = sandbox.start("stty -echo; stty size; read line; stty size", pty=(30, 100))
    output = process.output()
    text = ""
    while "30 100" not in text:
        text += (output.__next__()).text
    process.resize(40, 120)
    process.stdin.write("\n")
    for piece in output:
        text += piece.text
    assert "40 120" in text
    assert process.info.terminal


def test_another_client_attaches(sandbox: Sandbox, shared_state: Path) -> None:
    process = sandbox.start("echo first; read line; echo last $line", stdin=True)
    with Belljar(state_dir=shared_state) as other:
        again = other.processes.get(process.id)
        assert again.id in [listed.id for listed in other.processes.list(sandbox=sandbox.id)]
        again.stdin.write("word\n")
        text = "".join([piece.text for piece in again])
    assert text == "first\nlast word\n"
    assert (process.wait(20)).status == "succeeded"
    with pytest.raises(errors.ProcessNotFound):
        with Belljar(state_dir=shared_state) as other:
            other.processes.get("pabsent")
