from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from belljar import AsyncBelljar, AsyncSandbox


@pytest_asyncio.fixture
async def client(shared_state: Path) -> AsyncIterator[AsyncBelljar]:
    async with AsyncBelljar(state_dir=shared_state) as client:
        yield client


@pytest_asyncio.fixture
async def sandbox(client: AsyncBelljar) -> AsyncIterator[AsyncSandbox]:
    async with await client.sandboxes.create() as sandbox:
        yield sandbox
