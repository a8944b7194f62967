"""The one door behind both doors: accept or refuse, prepare, and stand in the line.

Laws: who asks is known first, here and nowhere else, and whose a job is comes from the key
and never from the request; a refusal is typed, at once, and disturbs nobody; a place in the
line is held before any work is done for a request; the cancel of a client, its deadline and
its leaving take one path into the engine's inbox.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from lanehost.door.accept import (
    accept_length,
    accept_sampling,
    check_image_ids,
    check_label,
    check_prompt_ids,
)
from lanehost.door.model_card import ModelCard
from lanehost.door.prepare import PreparedPrompt, Preparer
from lanehost.door.prompt_images import PromptImages
from lanehost.door.readmit import readmit
from lanehost.door.turnstile import Turnstile
from lanehost.door.uploads import Upload
from lanehost.engine.desk import Desk
from lanehost.engine.inbox import Arrived, Attach, Cancel, CancelCause
from lanehost.engine.reply import Reply
from lanehost.engine.stops import StopRules, check_stop
from lanehost.engine.stream import JobStream
from lanehost.engine.ticket import Ticket
from lanehost.errors import (
    DeadlinePassed,
    InvalidRequest,
    LanehostError,
    NotJournaled,
    Overloaded,
)
from lanehost.fault import record_fault
from lanehost.job import Accepted, ChatPrompt, Job, Request, Resumption, StopParams, TextPrompt
from lanehost.journal.journal import Journal
from lanehost.lanes.sequence import Sequence
from lanehost.text.model_text import ModelText

_MAX_SEED_BITS = 63
# Not a count: it would tell one scope how much the others ask.
_JOB_ID_BYTES = 8


class AdmissionDoor:
    """Turns requests into jobs in the line; gRPC and HTTP both come through here."""

    def __init__(
        self,
        *,
        card: ModelCard,
        text: ModelText,
        desk: Desk,
        turnstile: Turnstile,
        clock: Callable[[], float],
        images: PromptImages | None = None,
    ) -> None:
        """Open the door.

        Args:
            card: The model's limits and defaults.
            text: Its tokenizer and template.
            desk: What it shares with the engine.
            turnstile: Who may come in, and how many streams may be open.
            clock: Seconds that only rise, the engine's clock.
            images: Who prepares images; None prepares them within the default bounds.
        """
        self._card = card
        self._text = text
        self._line, self._inbox, self._journal = desk.line, desk.inbox, desk.journal
        self._turnstile = turnstile
        self._clock = clock
        self._images = PromptImages(text, clock=clock) if images is None else images
        self._preparer = Preparer(text, card=card, images=self._images)
        # Ids of two runs of the server differ, so a stale id of a client can never hit.
        self._run_id = secrets.token_hex(4)
        self._closed_with: LanehostError | None = None

    def __repr__(self) -> str:
        return f"<AdmissionDoor open={self.is_serving()} streams={self._turnstile.num_inside}>"

    @property
    def images(self) -> PromptImages:
        """Who prepares images, to look at."""
        return self._images

    def close(self, error: LanehostError) -> None:
        """Refuse every further request with `error`; those accepted go on."""
        self._closed_with = error

    def model_card(self, key: str | None) -> ModelCard:
        """Describe the model, its limits and defaults.

        Raises:
            Unauthenticated: nobody has this key.
        """
        self._turnstile.scope_of(key)
        return self._card

    def is_serving(self) -> bool:
        """Say whether a request sent now would be run."""
        return self._closed_with is None

    async def submit(self, request: Request) -> JobStream:
        """Put a request into the line.

        Raises:
            LanehostError: the refusal; its class says who must act.
        """
        arrived_s = self._clock()
        scope = self._turnstile.scope_of(request.key)
        check_label(request.label)
        check_stop(request.stop, self._card.vocab_size)
        draw = accept_sampling(
            request.sampling,
            vocab_size=self._card.vocab_size,
            fresh_seed=secrets.randbits(_MAX_SEED_BITS),
        )
        deadline_s = None if request.timeout_s is None else arrived_s + request.timeout_s
        self._hold_place(scope)
        undo = ExitStack()
        undo.callback(self._turnstile.leave, scope)
        undo.callback(self._line.withdraw, scope)
        with undo:
            held = undo.enter_context(closing(self._images.hold(request.prompt, scope)))
            prompt, max_tokens = await self._prepare(request, scope)
            held.let_files_go()
            self._check_open()
            reply = self._new_reply(request.stop, max_tokens)
            undo.pop_all()
        job = Job(
            job_id=f"{self._run_id}-{secrets.token_hex(_JOB_ID_BYTES)}",
            prompt_ids=prompt.prompt_ids,
            max_tokens=max_tokens,
            draw=draw,
            arrived_s=arrived_s,
            deadline_s=deadline_s,
            label=request.label,
            scope=scope,
            priority=request.priority,
            disk_use=request.disk_use,
            marks=prompt.marks,
            images=prompt.images,
        )
        with ExitStack() as undo:
            undo.callback(held.close)
            stream = self._enter_line(job, request.stop, reply)
            undo.pop_all()
        stream.when_closed(held.close)
        return stream

    async def upload_image(self, data: bytes, *, key: str | None) -> Upload:
        """Keep an image for requests to come.

        Raises:
            Unauthenticated: nobody has this key.
            InvalidRequest: it is no picture that is taken, or the model takes none.
            Overloaded: there are as many uploads as may be, or no room for it.
        """
        scope = self._turnstile.scope_of(key)
        self._check_open()
        return await self._images.upload(data, scope)

    async def resume_stream(self, resumption: Resumption) -> JobStream:
        """Go on with a stream; that there is none, or no such token, comes as its last event.

        Raises:
            Unauthenticated: nobody has this key.
            Overloaded: as many streams are open as may.
        """
        scope = self._turnstile.scope_of(resumption.key)
        self._turnstile.enter(scope)
        stream = self._new_stream(resumption.job_id, scope)
        timeout_s = resumption.timeout_s
        self._watch_deadline(stream, None if timeout_s is None else self._clock() + timeout_s)
        self._inbox.put(
            Attach(
                job_id=resumption.job_id,
                scope=scope,
                next_index=resumption.next_index,
                stream=stream,
                new_reply=self._new_reply,
            )
        )
        return stream

    def readmit(self, journal: Journal | None) -> None:
        """Put the open replies of an earlier master at the head of the line, in their order."""
        if journal is None:
            return
        tickets: list[Ticket] = []
        for known in journal.streams.open:
            job_id = known.accepted.job_id
            try:
                self._turnstile.check_known(known.accepted.scope)
                going_on = readmit(
                    known, card=self._card, new_reply=self._new_reply, now_s=self._clock()
                )
            except LanehostError as refusal:
                journal.give_up(job_id, str(refusal))
                continue
            except Exception as bug:  # noqa: BLE001 - a fault in one reply's text ends that one alone
                journal.give_up(job_id, str(record_fault(bug)))
                continue
            if isinstance(going_on, Ticket):
                tickets.append(going_on)
            else:
                journal.end(job_id, going_on)
        journal.flush()
        self._line.put_first(ticket.sequence for ticket in tickets)
        for ticket in tickets:
            self._inbox.put(Arrived(ticket))

    async def tokenize(self, prompt: TextPrompt | ChatPrompt, *, key: str | None) -> list[int]:
        """Return the ids that `submit` would run.

        Raises:
            Unauthenticated: nobody has this key.
            InvalidRequest: the prompt is empty, or the template refuses it.
            DoesNotFit: the text is too long however it is tokenized.
            Overloaded: the line is full.
        """
        scope = self._turnstile.scope_of(key)
        self._check_open()
        # A place of the line is held for the work, so that it is bounded like any other.
        self._line.promise(scope)
        try:
            prompt_ids = await self._preparer.prompt_ids(prompt, scope)
        finally:
            self._line.withdraw(scope)
        check_prompt_ids(prompt_ids, vocab_size=self._card.vocab_size)
        return list(prompt_ids)

    async def detokenize(
        self, token_ids: tuple[int, ...], *, keep_special: bool, key: str | None
    ) -> str:
        """Return the text of the ids.

        Raises:
            Unauthenticated: nobody has this key.
            InvalidRequest: there are more than the context holds, or one is unknown.
        """
        self._turnstile.scope_of(key)
        limit = self._card.context_length
        if len(token_ids) > limit:
            raise InvalidRequest("token_ids", f"has {len(token_ids)} ids, limit {limit}")
        for token_id in token_ids:
            if not 0 <= token_id < self._card.vocab_size:
                message = f"id {token_id}, allowed is 0 to {self._card.vocab_size - 1}"
                raise InvalidRequest("token_ids", message)
        return self._text.tokenizer.decode(token_ids, keep_special=keep_special)

    async def _prepare(self, request: Request, scope: str) -> tuple[PreparedPrompt, int]:
        """Return the prompt and the most tokens to generate; counts are judged first."""
        if request.timeout_s is not None and request.timeout_s <= 0:
            raise DeadlinePassed("admission")
        try:
            async with asyncio.timeout(request.timeout_s):
                prompt = await self._preparer.prepare(request.prompt, scope)
        except TimeoutError:
            raise DeadlinePassed("admission") from None
        max_tokens = accept_length(len(prompt.prompt_ids), request.max_tokens, card=self._card)
        check_prompt_ids(prompt.prompt_ids, vocab_size=self._card.vocab_size)
        if self._text.images is not None:
            check_image_ids(
                prompt.prompt_ids, prompt.images, image_token_id=self._text.images.token_id
            )
        return prompt, max_tokens

    def _check_open(self) -> None:
        if self._closed_with is not None:
            # The same error for everyone: without what earlier raises hung on it.
            raise self._closed_with.with_traceback(None)

    def _hold_place(self, scope: str) -> None:
        self._check_open()
        self._turnstile.enter(scope)
        try:
            self._line.promise(scope)
        except Overloaded:
            self._turnstile.leave(scope)
            raise

    def _new_reply(self, stop: StopParams, max_tokens: int) -> Reply:
        stops = StopRules(self._text.eos_token_ids, stop, max_tokens=max_tokens)
        return Reply(self._text.tokenizer.new_detokenizer(), stops)

    def _enter_line(self, job: Job, stop: StopParams, reply: Reply) -> JobStream:
        sequence = Sequence(job)
        try:
            self._line.join(sequence)
        except Overloaded:
            self._turnstile.leave(job.scope)
            raise
        try:
            self._journal.accept(job, stop)
        except NotJournaled:
            self._line.leave(job.job_id)
            self._turnstile.leave(job.scope)
            raise
        stream = self._new_stream(job.job_id, job.scope)
        self._watch_deadline(stream, job.deadline_s)
        stream.put(
            Accepted(job_id=job.job_id, seed=job.draw.seed, prompt_tokens=len(job.prompt_ids))
        )
        self._inbox.put(Arrived(Ticket(sequence=sequence, reply=reply, stream=stream)))
        return stream

    def _new_stream(self, job_id: str, scope: str) -> JobStream:
        stream = JobStream(job_id, on_cancel=partial(self._cancel, CancelCause.CLIENT))
        stream.when_closed(partial(self._turnstile.leave, scope))
        return stream

    def _watch_deadline(self, stream: JobStream, deadline_s: float | None) -> None:
        if deadline_s is not None:
            timer = asyncio.get_running_loop().call_later(
                deadline_s - self._clock(), self._cancel, CancelCause.DEADLINE, stream.job_id
            )
            stream.when_closed(timer.cancel)

    def _cancel(self, cause: CancelCause, job_id: str) -> None:
        self._inbox.put(Cancel(job_id, cause))
