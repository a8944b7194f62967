"""`lanehost follow`: the process of one rank on this host, for a master on another (ADR 22).

Laws: a master that is gone is dialled again, for so long and no longer; SIGTERM ends this in
order, with 0; whatever the way out, the rank's process is gone.
"""

import asyncio
import time
from enum import IntEnum
from typing import assert_never

import structlog

from lanehost.addresses import format_address
from lanehost.errors import StartupFailed
from lanehost.logs import set_up_logs
from lanehost.rank_group.agent import Agent, Dismissed, Lost, Refused
from lanehost.rank_group.front import check_rank_port, client_context
from lanehost.rank_group.supervisor import RANK_COMMAND
from lanehost.settings import FollowSettings
from lanehost.signals import StopSignals

log = structlog.get_logger()

_FIRST_WAIT_S = 0.25
_MAX_WAIT_S = 2.0
_REPORT_S = 10.0


class FollowExit(IntEnum):
    """What the process ends with."""

    OK = 0
    MASTER_LOST = 3


def run_follower(settings: FollowSettings, *, rank_command: tuple[str, ...] = RANK_COMMAND) -> int:
    """Follow until told to stop; returns the process's exit code.

    Raises:
        StartupFailed: The master will not have this host, or the settings cannot work.
    """
    set_up_logs(is_json=settings.log_json)
    check_rank_port(settings.master)
    if settings.master.tls is not None:
        client_context(settings.master.tls)
    command = (*rank_command, "--log-json") if settings.log_json else rank_command
    return asyncio.run(_run(settings, command))


async def _run(settings: FollowSettings, command: tuple[str, ...]) -> int:
    main = asyncio.current_task()
    assert main is not None

    def end() -> None:
        main.cancel()

    with StopSignals(on_first=end, on_second=end) as signals:
        try:
            return await follow(settings, Agent(settings, rank_command=command))
        except asyncio.CancelledError:
            if signals.num_received == 0:
                raise
            log.info("follow_stopped", rank=settings.rank)
            return FollowExit.OK


async def follow(settings: FollowSettings, agent: Agent) -> FollowExit:
    """Follow one master after the other, until there is none for too long.

    Raises:
        StartupFailed: The master will not have this host.
    """
    master = format_address(settings.master.host, settings.master.port)
    log.info("follow_started", rank=settings.rank, master=master)
    patience = _Patience(settings.master_timeout_s)
    while True:
        outcome = await agent.follow()
        match outcome:
            case Dismissed(reason=reason, is_failure=is_failure):
                log.info("follow_dismissed", rank=settings.rank, reason=reason)
                return FollowExit.MASTER_LOST if is_failure else FollowExit.OK
            case Refused(reason=reason):
                raise StartupFailed(f"the master at {master} refuses this host: {reason}")
            case Lost(reason=reason, has_joined=has_joined):
                if has_joined:
                    log.warning("follow_master_lost", rank=settings.rank, reason=reason)
                    patience.renew()
                if patience.is_over():
                    log.error("follow_given_up", rank=settings.rank, master=master, reason=reason)
                    return FollowExit.MASTER_LOST
                if patience.is_report_due():
                    log.warning("master_awaited", master=master, reason=reason)
                await asyncio.sleep(patience.next_wait_s())
            case _:
                assert_never(outcome)


class _Patience:
    """How long this has been without a master, and when to look again."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.renew()

    def renew(self) -> None:
        """Begin to wait."""
        self._since_s = time.monotonic()
        self._reported_s = -_REPORT_S
        self._wait_s = _FIRST_WAIT_S

    def is_over(self) -> bool:
        """Say whether it was too long."""
        return time.monotonic() - self._since_s >= self._limit_s

    def is_report_due(self) -> bool:
        """Say whether to tell of it, now and then."""
        now_s = time.monotonic()
        if now_s - self._reported_s < _REPORT_S:
            return False
        self._reported_s = now_s
        return True

    def next_wait_s(self) -> float:
        """How long until the next try: doubled, up to a bound, and never beyond the limit."""
        wait_s = min(self._wait_s, self._since_s + self._limit_s - time.monotonic())
        self._wait_s = min(_MAX_WAIT_S, self._wait_s * 2)
        return max(0.0, wait_s)
