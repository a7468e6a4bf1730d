"""An agent that runs wholly inside a sandbox, without a network and without its model's key.

The model is a tool of the host: the agent asks, this process adds the key and answers. So the agent may be anything,
and what it could leak is not there. The model here is made up, so that the example needs no network.
"""

from __future__ import annotations

from belljar import Belljar

KEY = "a key that stays on the host"

POLICY = {
    "name": "agent",
    "version": "1.0",
    "defaults": {"action": "allow", "max_memory_mb": 256},
    "tool_allowlist": ["complete"],
}

AGENT = """
import subprocess
from belljar_tools import call

messages = [{"role": "user", "content": "Which files are in /workspace?"}]
while True:
    answer = call("complete", messages=messages)
    messages.append(answer)
    if "command" not in answer:
        print(answer["content"])
        break
    done = subprocess.run(answer["command"], shell=True, capture_output=True, text=True)
    messages.append({"role": "tool", "content": done.stdout + done.stderr})
"""


def model(messages: list[dict[str, str]], key: str) -> dict[str, str]:
    """Stands in for a model behind an address that wants the key."""
    assert key == KEY
    if messages[-1]["role"] == "user":
        return {"role": "assistant", "command": "ls /workspace"}
    return {"role": "assistant", "content": f"There are: {' '.join(messages[-1]['content'].split())}"}


def complete(messages: list[dict[str, str]]) -> dict[str, str]:
    """Asks the model."""
    return model(messages, KEY)


with Belljar() as client:
    files = {"/workspace/notes.txt": "a", "/workspace/agent.py": AGENT}
    with client.sandboxes.create(policy=POLICY, tools={"complete": complete}, files=files) as sandbox:
        print(sandbox.run(["python3", "/workspace/agent.py"], check=True).stdout)
        # The key is nowhere inside.
        print(sandbox.run("env; cat /proc/*/environ 2>/dev/null").stdout.count(KEY), "traces of the key")
