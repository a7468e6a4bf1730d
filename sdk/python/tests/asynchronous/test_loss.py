"""Servers that die in the middle. Nothing is lost or repeated."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from belljar import AsyncBelljar, errors

LINES = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done"
EXPECTED = "".join(f"line {number}\n" for number in range(300))


async def test_a_follower_goes_on_after_its_server_was_killed(own_state: Path) -> None:
    async with AsyncBelljar(state_dir=own_state) as client, await client.sandboxes.create() as sandbox:
        process = await sandbox.start(LINES)
        text, offset = "", 0
        killed: list[int] = []
        async for piece in process:
            assert piece.offset == offset
            offset += len(piece.data)
            text += piece.text
            if len(text) > 600 * (len(killed) + 1) and len(killed) < 2:
                killed.append((await client.server()).pid)
                os.kill(killed[-1], signal.SIGKILL)
        assert text == EXPECTED
        assert len(set(killed)) == 2
        assert process.info.exit_code == 0


async def test_a_server_at_an_address_is_waited_for(own_state: Path, binary: str) -> None:
    start = [binary, "--state-dir", str(own_state), "server", "start"]
    subprocess.run(start, check=True, capture_output=True)
    async with AsyncBelljar(f"unix:{own_state}/server.sock") as client:
        async with await client.sandboxes.create() as sandbox:
            process = await sandbox.start(LINES)
            text = ""
            async for piece in process:
                if not text:
                    os.kill((await client.server()).pid, signal.SIGKILL)
                    restart = subprocess.Popen(start, stdout=subprocess.DEVNULL)
                text += piece.text
            assert text == EXPECTED
            assert restart.wait(60) == 0


async def test_a_command_that_runs_is_not_run_twice(own_state: Path) -> None:
    async with AsyncBelljar(state_dir=own_state) as client, await client.sandboxes.create() as sandbox:
        pid = (await client.server()).pid
        # The server dies while it waits for the command.
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {pid}"])
        result = await sandbox.run("echo ran >> /workspace/count; sleep 1.5; cat /workspace/count")
        assert killer.wait(20) == 0
        assert result.stdout == "ran\n"
        assert (await client.server()).pid != pid
        assert len(await client.processes.list(sandbox=sandbox.id)) == 1


async def test_events_go_on(own_state: Path) -> None:
    async with AsyncBelljar(state_dir=own_state) as client:
        sandbox = await client.sandboxes.create()
        kinds = []
        async for event in client.sandboxes.events(since=0):
            kinds.append(event.kind)
            if event.kind == "sandbox_ready":
                os.kill((await client.server()).pid, signal.SIGKILL)
                await sandbox.destroy()
            if event.kind == "sandbox_destroyed":
                break
        assert kinds.count("sandbox_created") == kinds.count("sandbox_destroyed") == 1


async def test_no_server_is_an_error_after_some_patience(own_state: Path) -> None:
    async with AsyncBelljar(f"unix:{own_state}/absent.sock", patience=0.2) as client:
        with pytest.raises(errors.ServerUnreachable) as caught:
            await client.server()
        assert caught.value.remedy
    with pytest.raises(errors.ServerUnreachable, match="closed"):
        await client.server()
    with pytest.raises(errors.InvalidArgument, match="unix:PATH"):
        AsyncBelljar("nowhere")
    with pytest.raises(errors.ServerUnreachable, match="could not start"):
        async with AsyncBelljar(state_dir=own_state, binary="/absent/belljar"):
            pass
