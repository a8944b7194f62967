"""A rank process without torch: the real stream, guard and lane checks, a model of arithmetic.

Run as a script: `rank_process.py BEHAVIOUR` and the arguments of `python -m ranks`; several
behaviours are joined by commas, `...-on-1-in-life-2` is that of the second process of rank 1.
A token is drawn from the sum of what the lane was fed, so a slip in an order or a lane shows;
of an image that is the sum of its pixels. It takes images where "images" is a behaviour of it.
"""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ranks.__main__ import build_version, log_to_stderr, parse_settings
from ranks.abort import Abort
from ranks.errors import StepMismatch, StepSkipped
from ranks.guard import stand_guard
from ranks.lane_table import CheckedStep, LaneTable, Limits
from ranks.link import leave_soon, open_channel
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult, result_digest
from ranks.session import OnProgress, live
from ranks.settings import RankSettings
from ranks.wire.file_messages import FileDone, FileFault, FileOrder
from ranks.wire.image_messages import DropImage, EncodeImage, ImageDone, ImageFacts, ImageOrder
from ranks.wire.messages import TOKEN_VARIABLE, Form, Load, Loaded

VOCAB_SIZE = 1000
CONTEXT_LENGTH = 4096
NUM_LAYERS = 4
IMAGES = ImageFacts(num_tokens=4, token_id=999, width=2, height=3)
EXIT_BY_ITSELF = 7


def rank_command(behaviour: str) -> tuple[str, ...]:
    """What starts such a rank; "ok" behaves."""
    return (sys.executable, str(Path(__file__)), behaviour)


class ArithmeticWorker:
    """Checks plans as a real rank does and draws by arithmetic."""

    def __init__(self, settings: RankSettings, behaviour: str) -> None:
        self.rank = settings.rank
        self.world_size = settings.world_size
        self.behaviour = behaviour
        self.lanes: LaneTable | None = None
        self.model_path = Path()
        self.sums: dict[int, int] = {}
        self.images: dict[int, int] = {}
        self.life = 1

    def _begin_life(self) -> int:
        """Count the processes that this number has had, where the model is a folder."""
        if not self.model_path.is_dir():
            return 1
        lives = self.model_path / f"lives-{self.rank}"
        with lives.open("a") as file:
            file.write("x")
        return len(lives.read_text())

    def load(self, order: Load, on_progress: OnProgress) -> Loaded:
        self.model_path = Path(order.model_path)
        self.life = self._begin_life()
        on_progress(done_bytes=50, total_bytes=100)
        self._misbehave_in("load")
        on_progress(done_bytes=100, total_bytes=100)
        odd = self.rank == 1 and (
            self.behaviour == "other-weights"
            or (self.behaviour == "other-weights-in-life-2" and self.life == 2)
        )
        return Loaded(
            weights_digest="other" if odd else "arithmetic",
            config_digest="none",
            geometry=f"rank {self.rank} of {self.world_size}",
            vocab_size=VOCAB_SIZE,
            context_length=CONTEXT_LENGTH,
            kv_bytes_per_block=1024,
            step_bytes=1 << 20,
            step_bytes_per_block=64,
            free_bytes=(1 << 30) >> self.rank,
            dtype="float32",
            device="cpu",
            collective="none",
            weights="stored",
            kv_layout="tokens",
            num_layers=NUM_LAYERS,
            image_facts=IMAGES if "images" in self.behaviour.split(",") else None,
        )

    def form(self, order: Form, abort: Abort) -> None:
        self._misbehave_in("form")
        self.lanes = LaneTable(
            Limits(
                epoch=order.epoch,
                num_lanes=order.num_lanes,
                num_blocks=order.num_blocks,
                block_size=order.block_size,
                max_step_tokens=order.max_step_tokens,
                vocab_size=VOCAB_SIZE,
                context_length=CONTEXT_LENGTH,
                num_layers=NUM_LAYERS,
                max_staged_tokens=order.max_staged_tokens,
            )
        )

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        self._misbehave_in("step")
        assert self.lanes is not None
        if self.behaviour == "refuse-on-1" and self.rank == 1:
            return refused(plan, RefusalKind.MISMATCH, "on purpose")
        try:
            step = self.lanes.check(plan)
        except StepMismatch as err:
            return refused(plan, RefusalKind.MISMATCH, str(err))
        except StepSkipped as err:
            return refused(plan, RefusalKind.SKIPPED, str(err))
        drawn = self._draw(step)
        self.lanes.commit(step, drawn)
        fed = [one for rows in (*step.rows, *step.staged_rows) for one in rows.token_ids]
        if self.behaviour == "drift-on-1" and self.rank == 1:
            fed.append(0)
        return StepResult(
            step_id=plan.step_id,
            epoch=plan.epoch,
            drawn=drawn,
            failures={},
            digest=result_digest(plan.digest, fed, drawn),
        )

    def _draw(self, step: CheckedStep) -> dict[int, int]:
        for join in step.plan.joins:
            self.sums[join.lane_id] = 0
        drawn = {}
        for rows in (*step.rows, *(step.staged_rows if step.ends_pass else ())):
            self.sums[rows.lane_id] += sum(rows.token_ids)
            self.sums[rows.lane_id] += sum(self.images[one.image_id] for one in rows.images)
            if rows.num_draws:
                drawn[rows.lane_id] = (self.sums[rows.lane_id] * 7 + rows.end) % VOCAB_SIZE
        return drawn

    def take_image(self, order: ImageOrder, answer: Callable[[ImageDone], None]) -> None:
        match order.work:
            case EncodeImage(image_id=image_id, pixels=pixels):
                self.images[image_id] = sum(pixels)
                digest = sum(pixels) + (
                    "image-drift-on-1" in self.behaviour.split(",") and self.rank == 1
                )
                answer(
                    ImageDone(
                        epoch=order.epoch,
                        image_id=image_id,
                        num_tokens=IMAGES.num_tokens,
                        rows_digest=digest.to_bytes(16),
                    )
                )
            case DropImage(image_id=image_id):
                self.images.pop(image_id, None)
            case _:
                pass

    def take_file(self, order: FileOrder, answer: Callable[[FileDone], None]) -> None:
        answer(FileDone(order_id=order.order_id, epoch=order.epoch, fault=FileFault.GONE))

    def num_stages(self) -> int:
        return 0

    def leave(self) -> None:
        self.lanes = None
        self.sums, self.images = {}, {}

    def free(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _misbehave_in(self, phase: str) -> None:
        rank = f"-on-{self.rank}"
        life = f"{rank}-in-life-{self.life}"
        acts = {
            f"raise-in-{phase}": lambda: _raise(phase),
            f"exit-in-{phase}": lambda: os._exit(EXIT_BY_ITSELF),
            f"hang-in-{phase}": signal.pause,
            f"seize-in-{phase}": self._seize,
        }
        for name, act in acts.items():
            if {name, name + rank, name + life} & set(self.behaviour.split(",")):
                act()

    def _seize(self) -> None:
        """Hold the interpreter in one long call: no thread runs, once what was sent is out."""
        time.sleep(0.2)
        endless = re.compile("(a+)+$")
        told = self.model_path / str(self.rank)
        if told.is_fifo():
            told.write_bytes(b"")
        endless.match("a" * 64 + "b")


def refused(plan: StepPlan, kind: RefusalKind, reason: str) -> StepRefused:
    return StepRefused(step_id=plan.step_id, epoch=plan.epoch, kind=kind, reason=reason)


def _raise(phase: str) -> None:
    raise RuntimeError(f"raised in {phase} on purpose")


def main() -> int:
    behaviour = sys.argv[1]
    if behaviour == "exit-at-once":
        return EXIT_BY_ITSELF
    settings = parse_settings(sys.argv[2:], token=os.environ[TOKEN_VARIABLE])
    stand_guard(settings.death_fd)
    log_to_stderr(settings.rank, is_json=settings.log_json)
    if behaviour == f"silent-on-{settings.rank}":
        signal.pause()
    build = "0.0.0" if behaviour == f"old-build-on-{settings.rank}" else build_version()
    with open_channel(settings.master, settings.tls) as channel:
        worker = ArithmeticWorker(settings, behaviour)
        return live(settings, worker, channel, build=build, on_lost=leave_soon)


if __name__ == "__main__":
    sys.exit(main())
