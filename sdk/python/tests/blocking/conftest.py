from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import Belljar, Sandbox, errors


@pytest.fixture(scope="module")
def client(shared_state: Path) -> Iterator[Belljar]:
    with Belljar(state_dir=shared_state) as client:
        yield client


@pytest.fixture
def sandbox(client: Belljar) -> Iterator[Sandbox]:
    with client.sandboxes.create() as sandbox:
        yield sandbox


@pytest.fixture
def refused_early() -> tuple[type[errors.BelljarError], ...]:
    return (errors.ArchiveRefused,)
