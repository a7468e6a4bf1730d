"""A tool in the style of LangChain: a real one with `langchain-core` installed, one of the same shape without."""

from __future__ import annotations

from typing import Any, Callable

from belljar import Belljar, Sandbox


def plain_tool(function: Callable[..., str]) -> Any:
    """What `langchain_core.tools.tool` makes, as far as an agent needs it."""

    class PlainTool:
        name = function.__name__
        description = function.__doc__ or ""

        def invoke(self, arguments: dict[str, Any]) -> str:
            return function(**arguments)

    return PlainTool()


def python_tool(sandbox: Sandbox) -> Any:
    def run_python(code: str) -> str:
        """Runs Python code in a sealed computer without a network. Returns what it printed, or its error."""
        result = sandbox.run_python(code, timeout=20, output_limit=20_000)
        return result.stdout if result.ok else f"{result.stderr}\n(exit code {result.exit_code}, {result.reason})"

    try:
        from langchain_core.tools import tool
    except ImportError:
        return plain_tool(run_python)
    return tool(run_python)


with Belljar() as client, client.sandboxes.create(limits={"memory": "256M"}) as sandbox:
    tool = python_tool(sandbox)
    print(tool.name, "-", tool.description)
    print(tool.invoke({"code": "print(2 ** 100)"}))
    # What one call leaves is there in the next.
    tool.invoke({"code": "open('notes.txt', 'w').write('kept')"})
    print(tool.invoke({"code": "print(open('notes.txt').read())"}))
