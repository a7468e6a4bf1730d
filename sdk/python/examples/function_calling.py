"""A loop in which a model calls functions, and all that it runs runs in a sandbox.

The model here is made up and follows a script, so that the example needs no network; the messages have the shape that
chat completions with tools have.
"""

from __future__ import annotations

import json
from typing import Any

from belljar import Belljar, Sandbox

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run_python",
            "description": "Runs Python code in a sealed computer and returns what it printed.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    }
]


class FakeModel:
    """Asks for a computation, and then for another one that corrects its own mistake."""

    def complete(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        answers = [message for message in messages if message["role"] == "tool"]
        if not answers:
            return self.call("print(sum(range(1, 101))")
        if "SyntaxError" in answers[-1]["content"]:
            return self.call("print(sum(range(1, 101)))")
        return {"role": "assistant", "content": f"The sum is {answers[-1]['content'].strip()}."}

    def call(self, code: str) -> dict[str, Any]:
        function = {"name": "run_python", "arguments": json.dumps({"code": code})}
        return {
            "role": "assistant",
            "tool_calls": [{"id": f"call-{len(code)}", "type": "function", "function": function}],
        }


def answer(sandbox: Sandbox, call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.loads(call["function"]["arguments"])
    result = sandbox.run_python(arguments["code"], timeout=10, output_limit=10_000)
    return {"role": "tool", "tool_call_id": call["id"], "content": result.stdout + result.stderr}


def main() -> None:
    model = FakeModel()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the sum of the numbers from 1 to 100?"}]
    with Belljar() as client, client.sandboxes.create() as sandbox:
        while True:
            message = model.complete(messages, TOOLS)
            messages.append(message)
            calls = message.get("tool_calls")
            if not calls:
                print(message["content"])
                return
            messages.extend(answer(sandbox, call) for call in calls)


main()
