"""Times a sandbox's life through this package beside the same over bare gRPC (`belljar bench api`, before and after, on
the same machine), and a call from Python inside to a function of this process.

BELLJAR_BINARY=…/belljar python bench.py [ROUNDS]       a server of its own
BELLJAR_SERVER=… python bench.py [ROUNDS]               that one
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from belljar import AsyncBelljar, Belljar
from belljar._local import find_binary


def blocking(state_dir: str | None, rounds: int) -> list[float]:
    times = []
    with Belljar(state_dir=state_dir) as client:
        for _ in range(rounds + 5):
            begun = time.perf_counter()
            with client.sandboxes.create(template="host") as sandbox:
                sandbox.run(["true"])
            times.append((time.perf_counter() - begun) * 1000)
    return times[5:]


async def asynchronous(state_dir: str | None, rounds: int) -> list[float]:
    times = []
    async with AsyncBelljar(state_dir=state_dir) as client:
        for _ in range(rounds + 5):
            begun = time.perf_counter()
            async with await client.sandboxes.create(template="host") as sandbox:
                await sandbox.run(["true"])
            times.append((time.perf_counter() - begun) * 1000)
    return times[5:]


CALLS = """
import time
from belljar_tools import call
for _ in range(50):
    call("add", left=1, right=2)
times = []
for _ in range({rounds}):
    begun = time.perf_counter()
    call("add", left=1, right=2)
    times.append((time.perf_counter() - begun) * 1000)
print(" ".join(map(str, times)))
"""


def add(left: int, right: int) -> int:
    return left + right


def calls(state_dir: str | None, rounds: int) -> list[float]:
    policy = {"name": "bench", "version": "1.0", "defaults": {"action": "allow"}, "tool_allowlist": ["add"]}
    with Belljar(state_dir=state_dir) as client, client.sandboxes.create(policy=policy, tools=[add]) as sandbox:
        told = sandbox.run_python(CALLS.replace("{rounds}", str(rounds)), check=True, timeout=300).stdout
    return [float(word) for word in told.split()]


def bare(rounds: int) -> float:
    """The median of the same over gRPC without a package around it, in a server of its own."""
    few = ["--followers", "1", "--connections", "1", "--json"]
    command: list[str] = [find_binary(), "bench", "api", "--count", str(rounds), *few]
    environment = {name: value for name, value in os.environ.items() if name != "BELLJAR_SERVER"}
    told = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    return float(next(one["p50_ms"] for one in told["whole"] if one["name"].startswith("gRPC")))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    if os.environ.get("BELLJAR_SERVER"):
        return measure(None, rounds)
    with tempfile.TemporaryDirectory(prefix="belljar-bench-") as state_dir:
        measure(state_dir, rounds)
        subprocess.run([find_binary(), "--state-dir", state_dir, "server", "stop"], check=True, capture_output=True)
        return None


def measure(state_dir: str | None, rounds: int) -> None:
    life = "create, run `true`, destroy"
    grpc = [bare(rounds)]
    medians = {}
    for name, times in (
        (f"{life}, blocking", blocking(state_dir, rounds)),
        (f"{life}, asynchronous", asyncio.run(asynchronous(state_dir, rounds))),
        ("a call of a function", calls(state_dir, rounds)),
    ):
        times.sort()
        p50, p95 = statistics.median(times), times[int(len(times) * 0.95)]
        medians[name] = p50
        print(f"{name}: p50 {p50:.2f} ms, p95 {p95:.2f} ms, n = {rounds}")
    grpc.append(bare(rounds))
    print(f"{life}, bare gRPC: p50 {grpc[0]:.2f} ms before and {grpc[1]:.2f} ms after")
    for name, p50 in medians.items():
        if name.startswith(life):
            print(f"{name}: {p50 / statistics.mean(grpc):.2f} times the bare call")


if __name__ == "__main__":
    main()
