"""A real rank whose steps fail on purpose: the real worker, its model wrapped.

Run as a script: `failing_rank.py RULE` and the arguments of `python -m ranks`. A step for
which the rule holds raises a RuntimeError in its forward pass, before any collective:

    fail-token=ID            a row of it feeds this token id
    fail-prompts-above=N     it has more than N chunks of more than one token: a pass of prompts
    fail-drafts              a lane of it has a draft
    late-token=ID            as fail-token, but behind the forward pass: collectives have begun
    hang-token=ID            the forward pass never begins, and nothing is raised
    slow-token=ID            it is done over and over for two seconds

Several rules are joined by commas; `RULE@1` holds on rank 1 alone.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ranks.__main__ import build_version, log_to_stderr, parse_settings
from ranks.guard import stand_guard
from ranks.plan import StepPlan
from ranks.wire.messages import TOKEN_VARIABLE

# Some beats of a heart.
_SLOW_S = 2.0
KINDS = (
    "fail-token",
    "fail-prompts-above",
    "fail-drafts",
    "late-token",
    "hang-token",
    "slow-token",
)


def failing_rank_command(rule: str) -> tuple[str, ...]:
    """What starts such a rank."""
    for one in rule.split(","):
        assert one.partition("@")[0].partition("=")[0] in KINDS, one
    return (sys.executable, str(Path(__file__)), rule)


class Rules:
    """The rules that hold on one rank."""

    def __init__(self, rule: str, *, rank: int) -> None:
        parts = [one.partition("@") for one in rule.split(",")]
        held = [name.partition("=") for name, _, on in parts if not on or int(on) == rank]
        self._rules = [(kind, int(value or 0)) for kind, _, value in held]

    def fails_before(self, plan: StepPlan, fed: list[int]) -> bool:
        """Say whether the step fails before its first collective."""
        num_prompts = sum(len(chunk.token_ids) > 1 for chunk in plan.chunks)
        held = {
            "fail-token": lambda value: value in fed,
            "fail-prompts-above": lambda value: num_prompts > value,
            "fail-drafts": lambda _: bool(plan.drafts),
        }
        return any(held[kind](value) for kind, value in self._rules if kind in held)

    def feeds(self, named: str, fed: list[int]) -> bool:
        """Say whether it feeds the token of a rule: `late-token` fails behind the forward pass."""
        return any(kind == named and value in fed for kind, value in self._rules)


class FailingModel:
    """A model that raises when the rules say so; all else is the model's own."""

    def __init__(self, model: Any, rules: Rules) -> None:
        self._model = model
        self._rules = rules
        self.plan: StepPlan | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, rows: Any, kv: Any, collective: Any) -> Any:
        assert self.plan is not None
        fed = [token_id for lane in rows for token_id in lane.token_ids]
        if self._rules.fails_before(self.plan, fed):
            raise RuntimeError("failed on purpose")
        if self._rules.feeds("hang-token", fed):
            signal.pause()
        if self._rules.feeds("slow-token", fed):
            until_s = time.monotonic() + _SLOW_S
            while time.monotonic() < until_s:
                self._model.forward(rows, kv, collective)
        logits = self._model.forward(rows, kv, collective)
        if self._rules.feeds("late-token", fed):
            raise RuntimeError("failed on purpose")
        return logits


def main() -> int:
    settings = parse_settings(sys.argv[2:], token=os.environ[TOKEN_VARIABLE])
    stand_guard(settings.death_fd)
    log_to_stderr(settings.rank, is_json=settings.log_json)
    # Late, as in the real program: the guard must hold while torch loads.
    from ranks.link import leave_soon, open_channel  # noqa: PLC0415
    from ranks.session import live  # noqa: PLC0415
    from ranks.worker import ModelWorker  # noqa: PLC0415

    class FailingWorker(ModelWorker):
        """Wraps the model as soon as it is there, and shows it each plan."""

        def load(self, order: Any, on_progress: Any) -> Any:
            loaded = super().load(order, on_progress)
            rules = Rules(sys.argv[1], rank=settings.rank)
            self.failing = self._model = FailingModel(self._model, rules)
            return loaded

        def run(self, plan: StepPlan) -> Any:
            self.failing.plan = plan
            return super().run(plan)

    with open_channel(settings.master, settings.tls) as channel:
        worker = FailingWorker(settings, channel)
        return live(settings, worker, channel, build=build_version(), on_lost=leave_soon)


if __name__ == "__main__":
    sys.exit(main())
