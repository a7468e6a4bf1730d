"""A process that is followed, left, and found again."""

from belljar import Belljar

with Belljar() as client, client.sandboxes.create() as sandbox:
    process = sandbox.start(
        "for n in 1 2 3; do echo step $n; sleep 0.1; done; read line; echo you said $line", stdin=True
    )
    for output in process:
        print(output.channel, output.text, end="")
        if "step 3" in output.text:
            break

    # Anybody who may see the sandbox can go on with it, from any byte.
    again = client.processes.get(process.id)
    logs = again.logs()
    again.stdin.write("goodbye\n")
    again.wait(timeout=10)
    print(again.logs(since=logs.end).stdout)
