"""Which images the ranks have encoded, are encoding, or are to encode next (ADR 30).

What is wanted is read off the lanes, turn after turn: an image whose rows a lane has not
computed yet. So however a job ends, parks or is carried into the next epoch, what it wanted is
wanted no more in that very turn, and nothing has to be taken back by anybody else.

Laws: images are ordered as lanes sat down and as they stand in the prompt; the one that the
oldest lane needs next is always kept, or comes as soon as room is free, if need be in the place
of what others need later, so no set of lanes can wait for each other; rows that are ordered or
kept never pass the room, and images that ranks have been asked for and have not answered never
pass `MAX_ORDERED`; rows that a plan in flight or the open pass may read stay; an encode
that nobody wants any more is cancelled; equal images are encoded once, and kept while there is
room, those used last the longest. Of an epoch that has ended nothing is left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from lanehost.job import PromptImage
from lanehost.lanes.lane import Lane, LaneState
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason, RankImages

# Below what a rank has waiting at most (`ranks.images.encoder_thread`), however small images are.
MAX_ORDERED = 32


@dataclass(slots=True, kw_only=True, eq=False)
class _Known:
    """An image that was ordered in this epoch; its rows are there once it is ready.

    It is pinned while a plan that may read its rows is with the ranks, or its pass is open.
    """

    image_id: int
    digest: bytes
    num_tokens: int
    users: set[str] = field(default_factory=set[str])
    is_pinned: bool = False
    is_ready: bool = False
    is_cancelled: bool = False
    last_used: int = 0


@dataclass(slots=True, eq=False)
class ImageCounters:
    """What became of images, since the start; `cached` ones were there, or on their way."""

    encoded: int = 0
    cached: int = 0
    cancelled: int = 0
    failed: int = 0
    evicted: int = 0
    encode_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEnd:
    """What an outcome means to jobs: how long each waited for it, or which fail by it."""

    waited_s: Mapping[str, float] = field(default_factory=dict[str, float])
    failed_job_ids: tuple[str, ...] = ()


class EngineImages:
    """Owned by the engine's loop."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Begin without ranks; `clock` gives seconds that only rise."""
        self._clock = clock
        self._images: RankImages | None = None
        self._room = 0
        self._known: dict[bytes, _Known] = {}
        self._by_id: dict[int, _Known] = {}
        # Job → since when it has wanted images that are not ready.
        self._waits_since_s: dict[str, float] = {}
        # Rising over all epochs: an answer of an earlier one is of no image that is known.
        self._ids = count(1)
        self._uses = count(1)
        self.counters = ImageCounters()

    def __repr__(self) -> str:
        return f"<EngineImages {len(self._known)} known, {self.num_rows} of {self._room} rows>"

    @property
    def num_rows(self) -> int:
        """Rows that are kept, or will be."""
        return sum(one.num_tokens for one in self._known.values())

    @property
    def num_ordered(self) -> int:
        """Images that are not ready yet."""
        return sum(not one.is_ready for one in self._known.values())

    @property
    def num_wanted(self) -> int:
        """Images that a lane wants."""
        return sum(bool(one.users) for one in self._known.values())

    @property
    def ready(self) -> Mapping[bytes, int]:
        """The images whose rows are there, by digest: the numbers that plans name them by."""
        return {one.digest: one.image_id for one in self._known.values() if one.is_ready}

    def begin(self, images: RankImages | None, *, room: int) -> None:
        """Go on with the ranks of an epoch, which keep `room` rows at most."""
        self._images, self._room = images, room

    def end(self) -> None:
        """Forget the epoch: its rows are gone."""
        self._images = None
        self._known.clear()
        self._by_id.clear()
        self._waits_since_s.clear()

    def see(self, lanes: LaneTable) -> None:
        """Order what lanes want now, and cancel what none does."""
        if self._images is None:
            return
        wanted = _wanted_by(lanes)
        users: dict[bytes, set[str]] = {}
        for want in wanted:
            users.setdefault(want.digest, set()).add(want.job_id)
        pinned = {want.digest for want in wanted if want.is_planned}
        for one in self._known.values():
            one.users = users.get(one.digest, set())
            one.is_pinned = one.digest in pinned
            if not one.users and not one.is_ready and not one.is_cancelled:
                one.is_cancelled = True
                self._images.cancel(one.image_id)
        self._order_all(wanted, self._images)
        self._note_waits(wanted)

    def take(self, outcome: ImageOutcome) -> ImageEnd:
        """Take what became of an image; says what that means to jobs."""
        known = self._by_id.get(outcome.image_id)
        if known is None:
            return ImageEnd()
        if outcome.reason is None:
            known.is_ready = True
            known.last_used = next(self._uses)
            self.counters.encoded += 1
            self.counters.encode_s += outcome.seconds
            now_s = self._clock()
            since_s = self._waits_since_s
            return ImageEnd(waited_s={one: now_s - since_s.get(one, now_s) for one in known.users})
        self._forget(known)
        if outcome.reason is ImageReason.CANCELLED:
            # Who wants it again since then has it ordered anew.
            self.counters.cancelled += 1
            return ImageEnd()
        self.counters.failed += 1
        return ImageEnd(failed_job_ids=tuple(sorted(known.users)))

    def note_seated(self, lane: Lane) -> None:
        """Count which images of a job that took a lane need not be encoded for it."""
        self.counters.cached += sum(image.image.digest in self._known for image in _images_of(lane))

    def _order_all(self, wanted: list["_Want"], images: RankImages) -> None:
        is_urgent = True
        for want in wanted:
            if (known := self._known.get(want.digest)) is not None:
                known.users.add(want.job_id)
                known.last_used = next(self._uses)
            else:
                if self.num_ordered >= MAX_ORDERED:
                    return
                num_tokens = want.image.num_tokens
                victims = self._victims(num_tokens, wanted if is_urgent else [])
                if victims is None:
                    return
                self._drop_all(victims, images)
                self._order(want, images)
            is_urgent = is_urgent and want.is_planned

    def _order(self, want: "_Want", images: RankImages) -> None:
        ordered = _Known(
            image_id=next(self._ids), digest=want.digest, num_tokens=want.image.num_tokens
        )
        ordered.users.add(want.job_id)
        self._known[ordered.digest] = self._by_id[ordered.image_id] = ordered
        images.encode(ordered.image_id, want.image.image)

    def _victims(self, num_tokens: int, spare: list["_Want"]) -> list[_Known] | None:
        """Return whose rows go so that so many fit, None if they never do.

        First those that nobody wants, who were used last go last; then of the `spare` ones those
        that are wanted last.
        """
        over = self.num_rows + num_tokens - self._room
        ready = [one for one in self._known.values() if one.is_ready and not one.is_pinned]
        turns = sorted((one for one in ready if not one.users), key=lambda one: one.last_used)
        wanted = dict.fromkeys(want.digest for want in spare)
        turns += [one for digest in reversed(wanted) for one in ready if one.digest == digest]
        victims: list[_Known] = []
        for one in turns:
            if over <= 0:
                break
            victims.append(one)
            over -= one.num_tokens
        return victims if over <= 0 else None

    def _drop_all(self, victims: list[_Known], images: RankImages) -> None:
        for one in victims:
            self._forget(one)
            self.counters.evicted += 1
            images.drop(one.image_id)

    def _note_waits(self, wanted: list["_Want"]) -> None:
        now_s, before = self._clock(), self._waits_since_s
        self._waits_since_s = {
            want.job_id: before.get(want.job_id, now_s)
            for want in wanted
            if not self._is_ready(want.digest)
        }

    def _is_ready(self, digest: bytes) -> bool:
        known = self._known.get(digest)
        return known is not None and known.is_ready

    def _forget(self, known: _Known) -> None:
        del self._known[known.digest], self._by_id[known.image_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Want:
    """An image that a job's lane has not computed; `is_planned`: a plan has its rows."""

    image: PromptImage
    job_id: str
    is_planned: bool

    @property
    def digest(self) -> bytes:
        return self.image.image.digest


def _wanted_by(lanes: LaneTable) -> list[_Want]:
    """Return what lanes want, as these sat down and as it stands in their prompts.

    A lane that runs out wants those images alone whose rows are in a plan that may read them.
    """
    with_images = [lane for lane in lanes if lane.job.images]
    with_images.sort(key=lambda lane: lane.seat_number)
    return [
        _Want(
            image=image,
            job_id=lane.job.job_id,
            is_planned=image.start < lane.num_planned_tokens,
        )
        for lane in with_images
        for image in _images_of(lane)
    ]


def _images_of(lane: Lane) -> tuple[PromptImage, ...]:
    is_out = lane.state is LaneState.DRAINING
    end = lane.num_planned_tokens if is_out else len(lane.prefill_ids)
    return tuple(one for one in lane.job.images if lane.num_computed_tokens <= one.start < end)
