"""What ranks say and do becomes events; what a former life says is dropped."""

import asyncio
import importlib.metadata
from contextlib import asynccontextmanager

from lanehost.rank_group.crew import Crew
from lanehost.rank_group.events import (
    EpochLost,
    Exited,
    LossCause,
    RankLost,
    SaidHello,
    SaidLeft,
    SaidLoaded,
    SaidReady,
)
from ranks.plan import StepResult
from ranks.wire.codec import decode_master_message, encode_rank_message
from ranks.wire.follow_messages import Dismiss
from ranks.wire.messages import Broken, Form, Heartbeat, Leave, Left, LoadProgress, Ready
from tests.support.rank_facts import group_settings, hello, loaded
from tests.support.served_ranks import dialled

NO_PROGRAM = ("/no/such/program",)


class Played:
    """A crew whose only rank the test plays: its process cannot be started."""

    def __init__(self):
        self.events, self.answers = asyncio.Queue(), []
        self.crew = Crew(
            group_settings(tp=1),
            rank_command=NO_PROGRAM,
            tell=self.events.put_nowait,
            on_answer=lambda rank, answer: self.answers.append((rank, answer)),
            on_progress=lambda _: None,
        )

    async def next_event(self):
        return await asyncio.wait_for(self.events.get(), 10)

    @asynccontextmanager
    async def rank(self):
        self.crew.spawn(0)
        said = "rank 0 cannot be started: [Errno 2] No such file or directory: '/no/such/program'"
        assert await self.next_event() == Exited(0, said)
        build = importlib.metadata.version("lanehost")
        me = hello(world_size=1, build=build, token=self.crew._token)
        async with dialled(self.crew._address, me) as call:
            assert await self.next_event() == SaidHello(0)
            yield call


@asynccontextmanager
async def played_crew():
    played = Played()
    await played.crew.start()
    try:
        yield played
    finally:
        await played.crew.stop(Dismiss(reason="enough", is_failure=False))


FORM = Form(
    epoch=1, num_blocks=1, block_size=1, num_lanes=1, max_step_tokens=1, collective_timeout_s=1
)
SAID = {
    Ready(epoch=3): SaidReady(0, 3),
    Left(epoch=3): SaidLeft(0, 3),
    loaded(): SaidLoaded(0),
    Broken(epoch=3, suspect=1, reason="time-out"): EpochLost(
        3, LossCause.BROKEN, "rank 0 says that the group is broken: time-out", 1
    ),
    Broken(epoch=3, suspect=0, reason="odd"): RankLost(
        0, LossCause.BROKEN, "rank 0 says that the group is broken: odd"
    ),
    hello(): RankLost(0, LossCause.OUT_OF_STEP, "out of step: rank 0 said Hello in mid-life"),
}


async def test_what_a_rank_says_becomes_an_event():
    async with played_crew() as played, played.rank() as call:
        for message, event in SAID.items():
            await call.write(encode_rank_message(message))
            assert await played.next_event() == event


async def test_beats_progress_and_answers_are_no_events():
    async with played_crew() as played, played.rank() as call:
        result = StepResult(step_id=1, epoch=1, drawn={}, failures={}, digest=bytes(16))
        for message in (
            Heartbeat(step_id=0, num_stages=0),
            LoadProgress(done_bytes=1, total_bytes=2),
            result,
            Ready(epoch=1),
        ):
            await call.write(encode_rank_message(message))
        assert await played.next_event() == SaidReady(0, 1)
        assert played.answers == [(0, result)]


async def test_what_a_former_life_of_the_number_says_is_dropped():
    async with played_crew() as played, played.rank() as former, played.rank() as call:
        await former.write(encode_rank_message(Ready(epoch=1)))
        former.cancel()
        await call.write(encode_rank_message(Ready(epoch=2)))
        assert await played.next_event() == SaidReady(0, 2)


async def test_one_that_loads_something_else_than_the_first_epoch_had_is_lost():
    async with played_crew() as played:
        async with played.rank() as call:
            await call.write(encode_rank_message(loaded()))
            assert await played.next_event() == SaidLoaded(0)
            played.crew.tell_form(FORM)
        async with played.rank() as call:
            await call.write(encode_rank_message(loaded(weights_digest="x")))
            event = await played.next_event()
            while not isinstance(event, RankLost) or event.cause is LossCause.EXITED:
                event = await played.next_event()
            said = "rank 0 has weights_digest 'x', the first epoch had 'w'"
            assert event == RankLost(0, LossCause.DISAGREES, said)


async def test_what_it_is_told_arrives_and_the_keys_of_the_epoch_are_forgotten():
    async with played_crew() as played, played.rank() as call:
        played.crew._store.set("epoch1/a", b"v")
        played.crew.tell_leave(0, 1)
        assert decode_master_message(await call.read()) == Leave(epoch=1)
        assert len(played.crew._store) == 0


async def test_a_rank_of_ours_that_is_refused_fails_the_start_by_name():
    async with played_crew() as played:
        played.crew._server.expect(0)
        wrong = hello(world_size=1, build="9", token=played.crew._token)
        async with dialled(played.crew._address, wrong):
            event = await played.next_event()
        assert (event.epoch, event.cause) == (0, LossCause.DISAGREES)
        assert event.reason.startswith("rank 0 runs build 9, the master runs ")


async def test_a_silent_rank_is_lost_and_one_that_stands_still_ends_the_epoch_alone():
    async with played_crew() as played, played.rank():
        played.crew.note_ready()
        while played.events.empty():
            played.crew.liveness.hear_beat(0, step_id=7, num_stages=1)
            played.crew.look(1.0, lambda _: 7)
        stalled = "rank 0 has not moved in step 7 for 30 s"
        assert played.events.get_nowait() == EpochLost(0, LossCause.STALLED, stalled, 0)
        while played.events.empty():
            played.crew.look(1.0, lambda _: None)
        silent = "rank 0 has said nothing for 5 s"
        assert played.events.get_nowait() == RankLost(0, LossCause.SILENT, silent)
