"""What the engine holds of an open job, from arrival to its terminal event."""

from dataclasses import dataclass

from lanehost.engine.reply import Reply
from lanehost.engine.stream import JobStream
from lanehost.job import Finished, FinishReason, Job, Prefilled, Timing, Usage
from lanehost.lanes.sequence import Sequence


@dataclass(slots=True, kw_only=True)
class Ticket:
    """An open job: its reply so far, its reader, and when things happened to it.

    Owned by the engine loop. Times are on the master's monotonic clock; None until
    they happened. `num_given` tokens of the reply are of an earlier master; `num_disk_tokens` of
    the cached ones came from the disk. `encode_s` is the longest that it waited for an image.
    """

    sequence: Sequence
    reply: Reply
    stream: JobStream
    seated_s: float | None = None
    prefilled_s: float | None = None
    num_cached_tokens: int = 0
    num_disk_tokens: int = 0
    num_given: int = 0
    encode_s: float = 0.0

    @property
    def job(self) -> Job:
        """The job itself."""
        return self.sequence.job

    @property
    def phase(self) -> str:
        """Where the job is: waiting, prefill or decode."""
        if self.seated_s is None:
            return "waiting"
        return "prefill" if self.prefilled_s is None else "decode"

    def seat(self, num_cached_tokens: int, num_disk_tokens: int = 0, *, now_s: float) -> bool:
        """Note that it took a lane; says whether for the first time, which is what counts."""
        if self.seated_s is not None:
            return False
        self.seated_s = now_s
        self.num_cached_tokens = num_cached_tokens
        self.num_disk_tokens = num_disk_tokens
        return True

    def note_prefilled(self, *, now_s: float) -> None:
        """Tell the reader that the prompt is computed; once, whatever comes again."""
        if self.prefilled_s is None:
            self.prefilled_s = now_s
            self.stream.put(Prefilled(cached_tokens=self.num_cached_tokens))

    def finished(self, reason: FinishReason, matched: str | int | None, now_s: float) -> Finished:
        """Make the terminal event of a whole reply."""
        assert self.seated_s is not None
        assert self.prefilled_s is not None
        return Finished(
            reason=reason,
            matched=matched,
            usage=Usage(
                prompt_tokens=len(self.job.prompt_ids),
                cached_tokens=self.num_cached_tokens,
                completion_tokens=self.reply.num_tokens,
                disk_cached_tokens=self.num_disk_tokens,
                image_tokens=sum(image.num_tokens for image in self.job.images),
            ),
            timing=Timing(
                queue_s=self.seated_s - self.job.arrived_s,
                prefill_s=self.prefilled_s - self.seated_s,
                decode_s=now_s - self.prefilled_s,
                encode_s=self.encode_s,
            ),
        )
