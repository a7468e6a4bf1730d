"""Processes that go on by themselves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from belljar import AsyncBelljar, AsyncSandbox, Offsets, errors


async def test_output_comes_as_it_is_written(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("echo ready; read line; echo got $line; echo bad >&2", stdin=True)
    output = process.output()
    first = await output.__anext__()
    assert (first.channel, first.offset, first.text) == ("stdout", 0, "ready\n")
    assert not (await process.refresh()).ended
    assert await process.stdin.write("word\n") == 5
    rest = [(piece.channel, piece.offset, piece.data) async for piece in output]
    assert sorted(rest) == [("stderr", 0, b"bad\n"), ("stdout", 6, b"got word\n")]
    assert process.info.status == "succeeded"
    assert process.info.exit_code == 0
    with pytest.raises(errors.ProcessEnded):
        await process.signal(signal.SIGTERM)


async def test_logs_go_on_where_they_ended(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("echo one; read line; echo two", stdin=True)
    async for _ in process:
        break
    logs = await process.logs()
    assert (logs.stdout, logs.end) == ("one\n", Offsets(4, 0))
    await process.stdin.write("\n")
    await process.wait(20)
    assert (await process.logs(since=logs.end)).stdout == "two\n"
    assert (await process.logs()).stdout == "one\ntwo\n"
    assert (await process.result()).stdout == "one\ntwo\n"
    only = [piece async for piece in process.output(channels=["stderr"])]
    assert only == []


async def test_closing_the_input_is_seen(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("wc -c", stdin=True)
    assert await process.stdin.write(b"x" * 200_000) == 200_000
    await process.stdin.close()
    assert (await process.result(20)).stdout.strip() == "200000"


async def test_wait_has_a_limit_and_cancel_ends(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("sleep 100", timeout=0)
    with pytest.raises(errors.TimedOut):
        await process.wait(0.05)
    assert (await process.cancel(1)).status == "cancelled"
    assert (await process.wait(20)).reason == "cancelled"
    with pytest.raises(errors.CommandCancelled):
        (await process.result()).check()


async def test_signals_arrive(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
    async for _ in process:
        break
    await process.signal(signal.SIGUSR1)
    assert (await process.wait(20)).exit_code == 9
    assert "caught" in (await process.logs()).stdout


async def test_a_terminal_has_the_size_it_is_given(sandbox: AsyncSandbox) -> None:
    process = await sandbox.start("stty -echo; stty size; read line; stty size", pty=(30, 100))
    output = process.output()
    text = ""
    while "30 100" not in text:
        text += (await output.__anext__()).text
    await process.resize(40, 120)
    await process.stdin.write("\n")
    async for piece in output:
        text += piece.text
    assert "40 120" in text
    assert process.info.terminal


async def test_another_client_attaches(sandbox: AsyncSandbox, shared_state: Path) -> None:
    process = await sandbox.start("echo first; read line; echo last $line", stdin=True)
    async with AsyncBelljar(state_dir=shared_state) as other:
        again = await other.processes.get(process.id)
        assert again.id in [listed.id for listed in await other.processes.list(sandbox=sandbox.id)]
        await again.stdin.write("word\n")
        text = "".join([piece.text async for piece in again])
    assert text == "first\nlast word\n"
    assert (await process.wait(20)).status == "succeeded"
    with pytest.raises(errors.ProcessNotFound):
        async with AsyncBelljar(state_dir=shared_state) as other:
            await other.processes.get("pabsent")
