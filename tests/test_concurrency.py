"""Values computed once, whoever asks, fails or leaves."""

from __future__ import annotations

import asyncio
import gc

import pytest

from recollect.concurrency import Once


def test_many_who_ask_at_once_get_one_computation():
    asked: list[int] = []

    async def main() -> None:
        once: Once[str, int] = Once()

        async def compute() -> int:
            asked.append(1)
            await asyncio.sleep(0)
            return 7

        assert await asyncio.gather(*(once.get("k", compute) for _ in range(50))) == [7] * 50
        assert await once.get("k", compute) == 7

    asyncio.run(main())
    assert len(asked) == 1


def test_a_failure_reaches_all_who_wait_and_is_tried_again():
    tries: list[int] = []

    async def main() -> None:
        once: Once[str, int] = Once()

        async def compute() -> int:
            tries.append(1)
            await asyncio.sleep(0)
            if len(tries) == 1:
                raise OSError("gone")
            return 7

        waiting = (once.get("k", compute) for _ in range(3))
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in found] == [OSError] * 3
        assert await once.get("k", compute) == 7

    asyncio.run(main())
    assert len(tries) == 2


def test_the_first_to_ask_may_leave():
    async def main() -> None:
        once: Once[str, int] = Once()
        go = asyncio.Event()

        async def compute() -> int:
            await go.wait()
            return 7

        first = asyncio.ensure_future(once.get("k", compute))
        second = asyncio.ensure_future(once.get("k", compute))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go.set()
        assert await second == 7

    asyncio.run(main())


def test_another_loop_does_not_wait_for_a_dead_one():
    once: Once[str, int] = Once()

    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    async def seven() -> int:
        return 7

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(once.get("k", never), 0.01)

    asyncio.run(leave())
    assert asyncio.run(once.get("k", seven)) == 7


def test_only_so_many_are_kept():
    async def main() -> None:
        once: Once[int, int] = Once(most=3)
        for n in range(10):

            async def compute(n: int = n) -> int:
                return n

            await once.get(n, compute)
        assert list(once.values) == [7, 8, 9]

    asyncio.run(main())


def test_a_failure_after_all_have_left_is_no_news():
    complaints: list[dict] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, it: complaints.append(it))
        once: Once[str, int] = Once()

        async def compute() -> int:
            await asyncio.sleep(0)
            raise OSError("gone")

        asker = asyncio.create_task(once.get("k", compute))
        await asyncio.sleep(0)
        asker.cancel()
        await asyncio.gather(asker, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    assert not complaints
