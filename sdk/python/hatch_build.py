"""Puts the program `belljar` into the wheel where `BELLJAR_WHEEL_BINARY` names it, which makes it one of a platform."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = os.environ.get("BELLJAR_WHEEL_BINARY")
        if not binary or self.target_name != "wheel":
            return
        build_data["shared_scripts"] = {binary: "belljar"}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(binary)}"


def platform_tag(binary: str) -> str:
    """What the program needs of the machine: its processor, and the newest version of the C library that it names."""
    machine = platform.machine()
    versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", Path(binary).read_bytes())]
    # One that is linked statically runs on every C library.
    return f"manylinux_2_{max([17, *versions])}_{machine}"
