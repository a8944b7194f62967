"""Drive the bare step loop of a rank group and time each step, with the master's share apart.

What a step takes, as it is seen from here:

    compute   what the leader says that it computed (`StepResult.compute_ns`): everything from
              the plan's check to the drawn tokens, collectives included
    master    writing the plan, and handing it to the ranks' streams
    wire      the rest of a step that runs alone: there and back, and a slower fellow's lag

Every kind of step runs in rounds, in turn with one step in flight and with two, so that what
else the machine does befalls both. With two the next plan is there before the ranks are done,
and master and wire should cost no time: the share of them that does not show is `hidden`.

Plans ask for the parts of `compute` (`StepPlan.tells_parts`), which the leader names and which
add up to it; `step_parts` puts them beside the floor of the machine.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lanehost.bench.loop_plans import LoopPlans
from lanehost.bench.spread import Spread, spread_of
from lanehost.engine.backend import Backend
from lanehost.errors import StepFailed
from lanehost.rank_group.facts import MAX_STEPS_IN_FLIGHT
from ranks.plan import StepPlan, StepRefused

Write = Callable[[], StepPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """One step: from the outcome before it to its own, and what of that is known."""

    wall_ns: int
    compute_ns: int
    master_ns: int
    parts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def wire_ns(self) -> int:
        """What is neither; of a step that ran alone."""
        return max(0, self.wall_ns - self.compute_ns - self.master_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One kind of step, in nanoseconds: `alone` with one in flight, `paired` with two."""

    name: str
    num_tokens: int
    compute: Spread
    wire: Spread
    master: Spread
    alone: Spread
    paired: Spread
    shown_ns: float
    hidden_share: float
    tokens_per_s: float
    parts: dict[str, Spread] = field(default_factory=dict[str, Spread])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What the loop runs: how many lanes decode at once, and how much of each kind a round.

    `num_warmup` decodes before those that count are at least 1: the first step of a run has
    none before it that would hide anything.
    """

    lane_counts: tuple[int, ...]
    prompt_tokens: int
    num_rounds: int
    num_steps: int
    num_prefills: int
    num_warmup: int

    @property
    def max_positions(self) -> int:
        """Positions that a lane may come to hold."""
        return self.prompt_tokens + self.num_warmup + self.num_steps


async def measure_steps(
    group: Backend,
    settings: LoopSettings,
    *,
    clock_ns: Callable[[], int],
    on_round: Callable[[int], None],
) -> list[Figures]:
    """Measure prefill, and decode at each number of lanes; `on_round` hears how many are done.

    Raises:
        StepFailed: The ranks refused a step.
        RankGroupLost: A rank was lost.
    """
    loop = _Loop(group, settings, clock_ns)
    await loop.compute_prompts()
    for number in range(settings.num_rounds):
        for depth in (1, MAX_STEPS_IN_FLIGHT):
            await loop.prefill(depth)
        for num_lanes in settings.lane_counts:
            for depth in (1, MAX_STEPS_IN_FLIGHT):
                await loop.decode(num_lanes, depth)
        on_round(number + 1)
    return loop.found()


class _Loop:
    """Runs each kind of step, and keeps the samples by kind and by steps in flight."""

    def __init__(self, group: Backend, settings: LoopSettings, clock_ns: Callable[[], int]) -> None:
        self._settings = settings
        self._plans = LoopPlans(
            group.facts,
            prompt_tokens=settings.prompt_tokens,
            max_positions=settings.max_positions,
        )
        self._driver = Driver(group, clock_ns)
        self._samples: dict[tuple[str, int], dict[int, list[StepSample]]] = {}

    async def compute_prompts(self) -> None:
        """Prefill every lane once: this warms up, and leaves the prompts in their blocks."""
        for lane_id in range(max(self._settings.lane_counts)):
            await self._driver.run([partial(self._plans.prefill, lane_id)], depth=1)

    async def prefill(self, depth: int) -> None:
        """Run the prompt of the first lane again and again; the first time does not count."""
        writes = [partial(self._plans.prefill, 0)] * (1 + self._settings.num_prefills)
        samples = await self._driver.run(writes, depth=depth)
        self._keep("prefill", self._settings.prompt_tokens, depth, samples[1:])

    async def decode(self, num_lanes: int, depth: int) -> None:
        """Seat lanes behind their prompts and let them decode; the first steps do not count."""
        await self._driver.run([partial(self._plans.rejoin, num_lanes)], depth=1)
        num_steps = self._settings.num_warmup + self._settings.num_steps
        samples = await self._driver.run([self._plans.decode] * num_steps, depth=depth)
        counted = samples[self._settings.num_warmup :]
        self._keep(f"decode {num_lanes}", num_lanes, depth, counted)

    def found(self) -> list[Figures]:
        """Put all rounds together."""
        return [
            figures(name, num_tokens, alone=samples[1], paired=samples[MAX_STEPS_IN_FLIGHT])
            for (name, num_tokens), samples in self._samples.items()
        ]

    def _keep(self, name: str, num_tokens: int, depth: int, samples: list[StepSample]) -> None:
        kinds = self._samples.setdefault((name, num_tokens), {})
        kinds.setdefault(depth, []).extend(samples)


class Driver:
    """Keeps steps in flight, and takes their outcomes."""

    def __init__(self, group: Backend, clock_ns: Callable[[], int]) -> None:
        """Take a group that nobody else drives, and a monotonic clock."""
        self._group = group
        self._clock_ns = clock_ns

    async def run(self, writes: Sequence[Write], *, depth: int) -> list[StepSample]:
        """Run the plans that `writes` give, with up to `depth` in flight; all have ended then.

        Raises:
            StepFailed: The ranks refused a step.
            RankGroupLost: A rank was lost.
        """
        pending = deque(writes)
        master_ns: deque[int] = deque()
        samples: list[StepSample] = []
        last_ns = self._clock_ns()
        while pending or master_ns:
            while pending and len(master_ns) < depth:
                begun_ns = self._clock_ns()
                self._group.submit(pending.popleft()())
                master_ns.append(self._clock_ns() - begun_ns)
            outcome = await self._group.next_outcome()
            now_ns = self._clock_ns()
            if isinstance(outcome, StepRefused):
                raise StepFailed(f"the ranks refused step {outcome.step_id}: {outcome.reason}")
            samples.append(
                StepSample(
                    wall_ns=now_ns - last_ns,
                    compute_ns=outcome.compute_ns,
                    master_ns=master_ns.popleft(),
                    parts=outcome.parts,
                )
            )
            last_ns = now_ns
        return samples


def figures(
    name: str, num_tokens: int, *, alone: Sequence[StepSample], paired: Sequence[StepSample]
) -> Figures:
    """Put the samples of one kind of step together; medians count, since machines are noisy."""
    shown = {
        kind: max(0.0, _spread([one.wall_ns - one.compute_ns for one in samples]).p50)
        for kind, samples in (("alone", alone), ("paired", paired))
    }
    paired_wall = _spread([one.wall_ns for one in paired])
    hidden = 1 - shown["paired"] / shown["alone"] if shown["alone"] else 0.0
    return Figures(
        name=name,
        num_tokens=num_tokens,
        compute=_spread([one.compute_ns for one in paired]),
        wire=_spread([one.wire_ns for one in alone]),
        master=_spread([one.master_ns for one in alone]),
        alone=_spread([one.wall_ns for one in alone]),
        paired=paired_wall,
        shown_ns=shown["paired"],
        hidden_share=max(0.0, hidden),
        tokens_per_s=num_tokens / paired_wall.p50 * 1e9,
        parts=_spread_parts(paired),
    )


def _spread_parts(samples: Sequence[StepSample]) -> dict[str, Spread]:
    """What a step did not name took it no time."""
    names = {name: None for one in samples for name in one.parts}
    return {name: _spread([one.parts.get(name, 0) for one in samples]) for name in names}


def _spread(values: Sequence[int]) -> Spread:
    found = spread_of(values)
    assert found is not None, "no step was measured"
    return found
