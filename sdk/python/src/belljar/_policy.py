"""Policy documents in the forms that people have them in.

A dictionary (or the policy object of a toolkit) is a document; text with several lines, or a JSON object, is one; a
path, or a name that ends in `.yaml`, `.yml` or `.json`, is a file with one; anything else is the name of a policy that
the server keeps, as `name` or `name@version`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any, Union

from belljar._generated import api
from belljar._generated.codes import InvalidPolicy
from belljar._local import find_binary

PolicySource = Union[str, "os.PathLike[str]", Mapping[str, Any], Any]

SUFFIXES = (".yaml", ".yml", ".json")
# Documents that build on others are put together by the program, which knows how.
EXTENDS = re.compile(r"""^\s*["']?extends["']?\s*:""", re.MULTILINE)


def spec(given: PolicySource) -> api.PolicySpec:
    """Which policy a new sandbox runs under."""
    name = given if isinstance(given, str) and not _is_text(given) and not given.endswith(SUFFIXES) else None
    if name is not None:
        return api.PolicySpec(name=name)
    return api.PolicySpec(document=document(given))


def document(given: PolicySource) -> str:
    """The text of one document."""
    if isinstance(given, str) and _is_text(given):
        return given
    if isinstance(given, (str, os.PathLike)):
        return _read(os.fspath(given))
    if hasattr(given, "model_dump"):
        given = given.model_dump(mode="json", exclude_none=True)
    if not isinstance(given, Mapping):
        raise InvalidPolicy(
            f"`policy` is of type {type(given).__name__}", remedy="give a file, a text, a dictionary or a name"
        )
    return json.dumps(given)


def _is_text(given: str) -> bool:
    return "\n" in given or given.lstrip().startswith("{")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicy(f"the policy `{path}` cannot be read", cause=str(error)) from error
    return _together(path) if EXTENDS.search(text) else text


def _together(path: str) -> str:
    shown = subprocess.run(
        [find_binary(), "policy", "show", path], capture_output=True, text=True, timeout=60, check=False
    )
    if shown.returncode != 0:
        raise InvalidPolicy(f"the policy `{path}` cannot be put together", cause=shown.stderr.strip())
    return shown.stdout
