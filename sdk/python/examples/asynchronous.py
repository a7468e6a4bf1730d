"""Ten sandboxes at once."""

import asyncio

from belljar import AsyncBelljar


async def square(client: AsyncBelljar, number: int) -> int:
    async with await client.sandboxes.create() as sandbox:
        result = await sandbox.run_python(f"print({number} ** 2)", check=True)
        return int(result.stdout)


async def main() -> None:
    async with AsyncBelljar() as client:
        print(sum(await asyncio.gather(*(square(client, number) for number in range(10)))))


asyncio.run(main())
