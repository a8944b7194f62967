"""A master of a few lines, to be killed: `small_master.py BEHAVIOUR PHASE`.

Prints the process ids of its ranks once the group is in the phase: load, form, step, idle.
"""

import asyncio
import sys
from pathlib import Path

import structlog

from lanehost.rank_group.facts import LoadPhase, LoadState
from lanehost.rank_group.supervisor import running_rank_group
from lanehost.settings import RankGroupSettings
from tests.support.plan_writer import PlanWriter
from tests.support.rank_process import rank_command


async def main(behaviour: str, phase: str) -> None:
    """Hold the group for ever."""
    with structlog.testing.capture_logs() as logs:

        def say_pids() -> None:
            print(*[e["pid"] for e in logs if e["event"] == "rank_spawned"], flush=True)

        def on_progress(state: LoadState) -> None:
            in_load = state.num_connected == 2 and state.done_bytes == 100
            if (phase == "load" and in_load) or (
                phase == "form" and state.phase is LoadPhase.FORMING
            ):
                say_pids()

        settings = RankGroupSettings(model_path=Path("model"), tp=2)
        async with running_rank_group(
            settings, on_progress=on_progress, rank_command=rank_command(behaviour)
        ) as group:
            if phase == "step":
                group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
                await asyncio.sleep(0.3)
            say_pids()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
