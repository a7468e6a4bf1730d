"""Writes the reference of the package from its signatures and docstrings.

python reference.py           writes docs/reference/python.md
python reference.py --check   only compares
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import belljar
from belljar import _requests, errors, providers
from belljar._sync import administration, files, network, policies, process, processes, sandboxes, secrets, snapshots

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "python.md"
HEADER = """# The Python package

Generated from `sdk/python` by `python reference.py`. `AsyncBelljar` and what it gives have the same methods, to be
awaited. The [guide](../guides/python.md) shows how they are used.
"""
CLIENTS: list[type] = [
    belljar.Belljar,
    sandboxes.Sandboxes,
    belljar.Sandbox,
    files.Files,
    processes.Processes,
    belljar.Process,
    process.Input,
    network.Network,
    snapshots.Snapshots,
    policies.Policies,
    secrets.SecretStore,
    administration.Keys,
    administration.Tenants,
    administration.Webhooks,
    providers.SandboxProvider,
]
OPTIONS: list[Any] = [_requests.CreateOptions, _requests.CommandOptions]


def text(thing: Any) -> str:
    """The docstring, in one paragraph per paragraph."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else " ".join(part.split()) for part in paragraphs)


def signature(function: Any) -> str:
    """As it is written, without `self` and without where types live."""
    written = str(inspect.signature(function)).replace("'", "")
    written = re.sub(r"\(self(, )?", "(", written)
    return re.sub(r"\b(typing|typing_extensions|collections\.abc)\.", "", written)


def client(kind: type) -> str:
    page = f"\n## {kind.__name__}\n\n{text(kind)}\n\n"
    if "__init__" in vars(kind) and kind in (belljar.Belljar, providers.SandboxProvider):
        page += f"- `{kind.__name__}{signature(kind.__init__).replace(' -> None', '')}`\n"
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            page += f"- `{name}`"
            told = text(member)
        elif inspect.isfunction(member):
            page += f"- `{name}{signature(member)}`"
            told = text(member)
        else:
            continue
        page += (": " + told.replace("\n\n", " ") if told else "") + "\n"
    return page


def value(kind: Any) -> str:
    fields = ", ".join(f"`{field.name}: {field.type}`" for field in dataclasses.fields(kind) if field.name[0] != "_")
    return f"\n### {kind.__name__}\n\n{text(kind)}\n\n{fields}\n"


def options(kind: Any) -> str:
    fields = ", ".join(
        f"`{name}: {getattr(hint, '__forward_arg__', hint)}`" for name, hint in kind.__annotations__.items()
    )
    return f"\n### {kind.__name__}\n\n{text(kind)}\n\n{fields}\n"


def page() -> str:
    made = HEADER + "".join(client(kind) for kind in CLIENTS)
    made += "\n## Options\n" + "".join(options(kind) for kind in OPTIONS)
    modules = (belljar, providers)
    values = [getattr(module, name) for module in modules for name in sorted(module.__all__)]
    made += "\n## Values\n" + "".join(value(kind) for kind in values if dataclasses.is_dataclass(kind))
    made += "\n## Errors\n\nAll in `belljar.errors`, all `BelljarError`.\n\n| class | code | |\n|---|---|---|\n"
    for name, kind in sorted(vars(errors).items()):
        if inspect.isclass(kind) and issubclass(kind, errors.BelljarError):
            made += f"| `{name}` | `{kind.code}` | {text(kind).split(chr(10))[0]} |\n"
    return made


def main() -> int:
    wanted = page()
    if PAGE.exists() and PAGE.read_text() == wanted:
        return 0
    if "--check" in sys.argv:
        print(f"{PAGE.name}: stale; run `python reference.py`")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
