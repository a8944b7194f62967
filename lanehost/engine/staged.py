"""What the engine has beside lanes for prompts with images: what is encoded, how long slices are.

    lanes want images → ordered → ready → rows of a staged pass → slices, as long as they may be

Laws: an image that could not be encoded ends the jobs that wait for it, and nobody else's.
"""

from collections.abc import Callable

from lanehost.engine.backend import Backend
from lanehost.engine.images import EngineImages, ImageEnd
from lanehost.engine.inbox import Inbox
from lanehost.errors import LanehostError, Overloaded, StepFailed
from lanehost.lanes.lane import Lane
from lanehost.lanes.staged_pass import StagedFrame
from lanehost.lanes.stall_budget import StallBudget
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason
from lanehost.settings import EngineSettings
from ranks.plan import StepPlan, StepResult

# What another try may find changed.
_MAY_PASS = (ImageReason.OUT_OF_MEMORY, ImageReason.BUSY)
_RETRY_AFTER_S = 5.0


class StagedSide:
    """Owned by the engine's loop; of a model that takes no images it does nothing."""

    def __init__(
        self,
        facts: GroupFacts,
        settings: EngineSettings,
        inbox: Inbox,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Begin without ranks."""
        self._facts = facts
        self._settings = settings
        self._inbox = inbox
        self.images = EngineImages(clock=clock)
        self._stall = StallBudget(num_layers=facts.num_layers, max_stall_ms=settings.max_stall_ms)

    def __repr__(self) -> str:
        return f"<StagedSide {self.images!r} {self._stall!r}>"

    def begin(self, backend: Backend) -> None:
        """Go on with the ranks of an epoch."""
        if self._facts.images is not None and backend.images is not None:
            backend.images.tell(self._inbox.put_image_news)
            self.images.begin(backend.images, room=self._facts.image_cache_tokens)

    def frame(self) -> StagedFrame | None:
        """Return what the next plan's staged pass keeps to; None where there is none."""
        if self._facts.images is None:
            return None
        return StagedFrame(
            ready=self.images.ready,
            max_rows=self._facts.max_staged_tokens,
            shared_rows=min(self._settings.staged_rows, self._facts.max_staged_tokens),
            stall=self._stall,
        )

    def see(self, lanes: LaneTable) -> None:
        """Order the images that lanes want now, and cancel those that none does."""
        self.images.see(lanes)

    def note_step(self, plan: StepPlan, result: StepResult) -> None:
        """Learn what a step took in which streams waited for a slice."""
        staged = plan.staged
        if not plan.decodes:
            return
        if staged is None:
            if not plan.chunks:
                self._stall.note_beside(result.compute_ns)
        else:
            self._stall.note(
                compute_ns=result.compute_ns,
                num_rows=staged.num_tokens,
                num_layers=staged.stop_layer - staged.first_layer,
            )

    def note_seated(self, lane: Lane) -> None:
        """Count which images of a job that took a lane need not be encoded for it."""
        self.images.note_seated(lane)

    def take(self, outcome: ImageOutcome) -> ImageEnd:
        """Take what became of an image; says what that means to jobs."""
        return self.images.take(outcome)


def image_error(outcome: ImageOutcome) -> LanehostError:
    """Return what a job ends with whose image could not be encoded."""
    assert outcome.reason is not None
    message = (
        f"rank {outcome.rank} could not encode an image of this request "
        f"({outcome.reason.value}): {outcome.message}"
    )
    if outcome.reason in _MAY_PASS:
        return Overloaded(message, retry_after_s=_RETRY_AFTER_S)
    return StepFailed(message)
