"""Names of Python packages, and what installing them needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from belljar._flows import NetworkInfo
from belljar._generated.codes import InvalidArgument, NetworkDenied

# A name, extras, and versions: nothing that pip would read as an option, a path or an address.
REQUIREMENT = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._, -]+\])?"
    r"(\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+(\s*,\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+)*)?"
)
USUAL_HOSTS = ("pypi.org", "files.pythonhosted.org")


def checked(names: Iterable[str]) -> list[str]:
    """The names, where all of them are names."""
    if isinstance(names, str):
        raise InvalidArgument("`names` is a text", remedy="give `names` a list")
    chosen = [name.strip() for name in names]
    for name in chosen:
        if not REQUIREMENT.fullmatch(name):
            raise InvalidArgument(f"`{name}` is no name of a package", remedy="write `numpy` or `numpy>=2,<3`")
    if not chosen:
        raise InvalidArgument("there is no package to install", remedy="give `names` at least one name")
    return chosen


def missing_hosts(network: NetworkInfo, index_url: str | None) -> list[str]:
    """Hosts that pip needs and that an allowlist surely does not have."""
    if network.mode == "full":
        return []
    needed: Sequence[str] = USUAL_HOSTS if index_url is None else [urlsplit(index_url).hostname or ""]
    allowed = [entry.split("://")[-1] for entry in network.allow]
    return [host for host in needed if network.mode == "none" or not any(_covers(entry, host) for entry in allowed)]


def _covers(entry: str, host: str) -> bool:
    name = entry.rsplit(":", 1)[0] if entry.count(":") == 1 else entry
    return name == host or (name.startswith("*.") and host.endswith(name[1:]))


def refused(hosts: Sequence[str]) -> NetworkDenied:
    listed = ", ".join(f"`{host}`" for host in hosts)
    remedy = f"allow {listed}, or give `index_url`"
    return NetworkDenied(f"the sandbox may not reach {listed}, which pip needs", remedy=remedy)


def command(names: Sequence[str], index_url: str | None) -> list[str]:
    index = ["--index-url", index_url] if index_url else []
    return [
        *("python3", "-m", "pip", "install", "--user", "--break-system-packages", "--no-input", "--quiet"),
        *("--disable-pip-version-check", "--no-warn-script-location"),
        *index,
        "--",
        *names,
    ]
