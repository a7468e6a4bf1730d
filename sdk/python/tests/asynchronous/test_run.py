"""Commands that are run to their end."""

from __future__ import annotations

import pytest

from belljar import AsyncBelljar, AsyncSandbox, Finding, errors


async def test_a_shell_line_and_a_list_of_arguments(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr, result.reason) == (3, "out\n", "err\n", "exited")
    assert not result.ok
    assert result.usage.peak_memory_bytes > 0
    assert result.duration > 0
    result = await sandbox.run(["printf", "%s|", "a b", "$HOME"])
    assert result.stdout == "a b|$HOME|"
    assert result.ok
    assert result.check() is result
    assert (await sandbox.run(["printf", "%s", b"\xff"])).stdout_bytes == b"\xff"
    assert (await sandbox.run(["printf", "%s", b"\xff"])).stdout == "�"


async def test_environment_directory_user_and_input(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("echo $A; pwd; id -u; cat", env={"A": "b"}, cwd="/tmp", user="root", stdin="typed")
    assert result.stdout == "b\n/tmp\n0\ntyped"
    assert (await sandbox.run("cat", stdin=b"\x00\x01")).stdout_bytes == b"\x00\x01"
    with pytest.raises(errors.WorkingDirectoryInvalid):
        await sandbox.run("true", cwd="/absent")


async def test_a_timeout_is_a_result_and_with_check_an_error_of_its_own(client: AsyncBelljar) -> None:
    async with await client.sandboxes.create(timeout=0.3) as sandbox:
        result = await sandbox.run("echo begun; sleep 20")
        assert (result.exit_code, result.reason, result.timed_out, result.stdout) == (124, "timed_out", True, "begun\n")
        with pytest.raises(errors.CommandTimedOut) as caught:
            await sandbox.run("sleep 20", check=True)
        assert isinstance(caught.value, errors.TimedOut)
        assert caught.value.code == "timed-out"
        assert caught.value.result.exit_code == 124
        # The command's own word wins.
        assert (await sandbox.run("sleep 0.5; echo done", timeout=20)).stdout == "done\n"


async def test_a_failure_with_check_says_why(sandbox: AsyncSandbox) -> None:
    with pytest.raises(errors.CommandFailed, match="exit code 7") as caught:
        await sandbox.run("echo reason >&2; exit 7", check=True)
    assert caught.value.cause == "reason"
    assert not isinstance(caught.value, errors.TimedOut)


async def test_code_of_several_languages(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_python("print(6 * 7)")).stdout == "42\n"
    assert (await sandbox.run_python("import sys; print(sys.stdin.read())", stdin="in")).stdout == "in\n"
    assert "ZeroDivisionError" in (await sandbox.run_python("1 / 0")).stderr
    assert (await sandbox.run_code("echo $((6 * 7))", "bash")).stdout == "42\n"
    with pytest.raises(errors.InvalidArgument):
        await sandbox.run_code("x", "cobol")


async def test_what_stands_out_in_python_code_is_in_the_result(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_python("print(1)")).findings == ()
    shells = "import os\nos.system('true')"
    found = (Finding(line=2, column=1, rule="shell", name="os.system"),)
    assert (await sandbox.run_python(shells)).findings == found
    process = await sandbox.start(["python3", "-c", shells])
    assert process.info.findings == found
    assert (await process.result(60)).findings == found


async def test_output_is_bounded_and_says_so(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("head -c 100000 /dev/zero", output_limit=1000)
    assert result.stdout_truncated
    assert len(result.stdout_bytes) <= 1100
    large = await sandbox.run("head -c 5000000 /dev/zero", output_limit=8 << 20)
    assert len(large.stdout_bytes) == 5_000_000


async def test_artifacts_are_listed_where_asked_for(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("echo '{}' > /output/data.json", artifacts=True)
    (artifact,) = result.artifacts
    assert (artifact.path, artifact.bytes) == ("/output/data.json", 3)
    assert "json" in artifact.mime_type


async def test_no_command_is_refused_with_the_parameter_to_change(sandbox: AsyncSandbox) -> None:
    with pytest.raises(errors.InvalidArgument, match="list that begins with a program"):
        await sandbox.run([])
    with pytest.raises(errors.ProgramNotFound):
        await sandbox.run(["no-such-program"])
