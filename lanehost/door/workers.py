"""A few threads that work for all scopes, in turns.

Laws: there is never more at work than there are threads; scopes take turns, so nobody waits for
all that another has sent; a client that leaves takes its work along if that has not begun; what
has begun runs to its end on its thread, and its turn is over no sooner.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_P = TypeVar("_P")
_R = TypeVar("_R")


class Workers:
    """Threads, as many as there are turns to be had; within a scope first come, first served."""

    def __init__(self, num_workers: int, name: str) -> None:
        """Begin with all of them free; `name` is that of the threads."""
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix=name)
        self._num_free = num_workers
        # Who waits for a turn, by scope; the scope that is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, scope: str, work: Callable[[_P], _R], prompt: _P) -> _R:
        """Do some work on a thread, once it is the scope's turn."""
        loop = asyncio.get_running_loop()
        if self._num_free:
            self._num_free -= 1
        else:
            await self._turn(scope, loop.create_future())
        running = loop.run_in_executor(self._threads, work, prompt)
        running.add_done_callback(self._end_turn)
        # Whoever leaves now leaves its thread at work, so the turn is not over.
        return await asyncio.shield(running)

    async def _turn(self, scope: str, turn: "asyncio.Future[None]") -> None:
        self._waiting.setdefault(scope, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(scope, turn)
            else:
                self._pass_on()
            raise

    def _end_turn(self, running: "asyncio.Future[_R]") -> None:
        if not running.cancelled():
            running.exception()  # seen: the client may have left
        self._pass_on()

    def _pass_on(self) -> None:
        """Give a turn that is over to the next scope, and put that behind all others."""
        while self._waiting:
            scope = next(iter(self._waiting))
            turns = self._waiting.pop(scope)
            turn = turns.popleft()
            if turns:
                self._waiting[scope] = turns
            # One that was cancelled this very moment may still stand here.
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._num_free += 1

    def _forget(self, scope: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(scope, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(scope, None)
