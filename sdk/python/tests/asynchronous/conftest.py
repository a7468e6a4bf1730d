from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from belljar import AsyncBelljar, AsyncSandbox, errors


@pytest_asyncio.fixture
async def client(shared_state: Path) -> AsyncIterator[AsyncBelljar]:
    async with AsyncBelljar(state_dir=shared_state) as client:
        yield client


@pytest_asyncio.fixture
async def sandbox(client: AsyncBelljar) -> AsyncIterator[AsyncSandbox]:
    async with await client.sandboxes.create() as sandbox:
        yield sandbox


@pytest.fixture
def refused_early() -> tuple[type[errors.BelljarError], ...]:
    """gRPC for `asyncio` may lose why an answer came before its question was said."""
    return errors.ArchiveRefused, errors.Internal
