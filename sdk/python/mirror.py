"""Makes the blocking client and its tests from the asynchronous ones, so that the two cannot drift apart.

python mirror.py           writes
python mirror.py --check   only compares
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAIRS = (("src/belljar/_async", "src/belljar/_sync"), ("tests/asynchronous", "tests/blocking"))
# Written by hand on both sides: what waits is different there.
BY_HAND = {"__init__.py", "connection.py", "callbacks.py", "forward.py", "conftest.py", "aside.py"}

RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\bAsync(Iterator|Iterable|Generator)\b", r"\1"),
        (r"\bAsync([A-Z])", r"\1"),
        (r"__a(enter|exit|iter|next)__", r"__\1__"),
        (r"\bStopAsyncIteration\b", "StopIteration"),
        (r"\baclose\b", "close"),
        (r"\b_async\b", "_sync"),
    )
]


def mirrored(text: str, source: str) -> str:
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    text = f"# Made from {source} by mirror.py; change that one.\n{text}"
    for command in (["check", "--quiet", "--select", "I", "--fix-only"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(HERE / "src/belljar/mirrored.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    check = "--check" in sys.argv
    stale = []
    for source, target in PAIRS:
        for path in sorted((HERE / source).glob("*.py")):
            if path.name in BY_HAND:
                continue
            wanted = mirrored(path.read_text(), f"{source}/{path.name}")
            twin = HERE / target / path.name
            if twin.exists() and twin.read_text() == wanted:
                continue
            stale.append(str(twin.relative_to(HERE)))
            if not check:
                twin.parent.mkdir(parents=True, exist_ok=True)
                twin.write_text(wanted)
    for name in stale:
        print(f"{name}: {'stale; run `python mirror.py`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
