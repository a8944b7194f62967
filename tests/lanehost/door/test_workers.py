"""Threads that work for all scopes, in turns; test_prepare.py has their fairness."""

import asyncio
import threading

import pytest

from lanehost.door.workers import Workers


async def test_no_more_work_at_once_than_there_are_threads():
    gate, begun = threading.Event(), threading.Semaphore(0)
    running, most = [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        begun.release()
        gate.wait(5)
        running.remove(number)
        return number

    workers = Workers(2, "some")
    jobs = [asyncio.create_task(workers.run(f"scope {n}", work, n)) for n in range(5)]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=5)
    gate.set()
    assert await asyncio.gather(*jobs) == [0, 1, 2, 3, 4]
    assert max(most) == 2


async def test_what_fails_fails_for_who_asked_and_frees_its_thread():
    def fails(words):
        raise KeyError(words)

    workers = Workers(1, "one")
    for words in ("a", "b"):
        with pytest.raises(KeyError, match=words):
            await workers.run("", fails, words)
    assert await workers.run("", str.upper, "c") == "C"
