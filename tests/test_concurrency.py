"""Values computed once, whoever asks, fails or leaves; work that is stopped."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import time

import pytest

from recollect.concurrency import stop
from recollect.concurrency.many import Once
from recollect.concurrency.stop import Interrupted, Stop


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


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("signals", [1, 2])
def test_code_that_blocks_is_ended_by_one_signal_and_by_a_second_at_once(monkeypatch, signals):
    monkeypatch.setattr(stop, "PATIENCE", 0.05 if signals == 1 else 60)
    ended: list[str] = []

    async def blocks() -> None:
        try:
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)
            while True:
                time.sleep(0.001)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    async def work() -> None:
        await asyncio.gather(blocks(), blocks())

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    due, _ = signal.setitimer(signal.ITIMER_REAL, 1000)  # somebody's alarm, of pytest too
    try:
        with pytest.raises(Interrupted):
            Stop().run(work())
        left, interval = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, due)
    assert ended == ["CancelledError" if signals == 1 else "Interrupted"]
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    assert 900 < left <= 1000 and interval == 0


BEGINNING = """
import asyncio, os, signal, time
from recollect.concurrency import stop

stop.PATIENCE = 0.05
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt(times):
    for _ in range(times):  # once the others have begun
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)

"""
STUBBORN = """
async def refuses():
    while True:
        try:
            await asyncio.sleep(0.01)
        except BaseException:
            pass

async def work():
    interrupt(2)
    await asyncio.gather(refuses(), refuses())

stop.Stop().run(work())
"""
PATIENT = """
async def work():
    interrupt(1)
    await asyncio.to_thread(time.sleep, 0.5)

try:
    stop.Stop().run(work())
except stop.Interrupted:
    print("saved")
"""


def test_a_task_that_refuses_to_be_cancelled_is_ended_with_python_by_a_second_signal():
    words = [sys.executable, "-c", BEGINNING + STUBBORN]
    done = subprocess.run(words, stderr=-1, text=True, timeout=300)
    assert done.returncode == 130 and "a task of your own refused to be cancelled" in done.stderr


def test_a_thread_that_works_on_after_a_signal_is_waited_for():
    words = [sys.executable, "-c", BEGINNING + PATIENT]
    assert subprocess.run(words, stdout=-1, text=True, check=True).stdout == "saved\n"


@pytest.mark.usefixtures("heard")
def test_work_of_ours_that_blocks_is_waited_for(monkeypatch):
    monkeypatch.setattr(stop, "PATIENCE", 0.01)
    monkeypatch.setattr(stop, "is_own_code", lambda _file: False)
    done: list[int] = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.1)
        done.append(1)
        await asyncio.sleep(0)

    with pytest.raises(Interrupted):
        Stop().run(work())
    assert done


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_what_ends_python_in_a_task_reaches_only_who_awaits_it(ends):
    async def fails() -> None:
        raise ends(3)

    async def work() -> list[str]:
        async with asyncio.timeout(60):
            found = await asyncio.gather(fails(), fails(), return_exceptions=True)
        return [type(error).__name__ for error in found if error]

    assert Stop().run(work()) == [ends.__name__] * 2
    with pytest.raises(RuntimeError, match="it ended Python"):
        Stop().run(fails())
