"""The master: builds every room, ties them together, and ends them in order.

    doors bound (a taken port is known at once; health says NOT_SERVING)
    → ranks spawned and loading, the text side loading beside them
    → rank group formed → door and engine built → gate opened, health SERVING
    … until the first SIGTERM or SIGINT …
    → NOT_SERVING, requests still taken (for --drain-grace)
    → door closed, open jobs finish (up to --drain-timeout)
    → doors stopped → ranks stopped

Laws: whatever was started is ended on every way out; the master never imports torch.
"""

import asyncio
import secrets
import sys
import time
from contextlib import AsyncExitStack
from enum import IntEnum
from importlib.metadata import version

import structlog

from lanehost.admin.servicer import AdminServicer
from lanehost.admin.socket import serving_admin
from lanehost.admission.line import Line
from lanehost.console import StartupConsole
from lanehost.disk_cache.folder import Folder, owning_folder
from lanehost.door.door import AdmissionDoor
from lanehost.door.model_card import DEFAULT_MAX_TOKENS, DEFAULT_SAMPLING, ModelCard
from lanehost.door.prompt_images import PromptImages, image_card, known_to_ranks
from lanehost.door.turnstile import Turnstile
from lanehost.doors import Doors, HealthObserver
from lanehost.engine.backend import Epochs
from lanehost.engine.desk import Desk
from lanehost.engine.disk import EngineDisk
from lanehost.engine.disk_build import build_disk, model_identity
from lanehost.engine.disk_interface import Disk, NoDisk
from lanehost.engine.engine import Engine
from lanehost.engine.inbox import Drain, Inbox, Stop
from lanehost.engine.observer import Observers
from lanehost.engine.self_check import SelfCheck
from lanehost.errors import Draining, LanehostError, RankGroupLost, StartupFailed
from lanehost.fault import record_fault
from lanehost.journal.interface import NoJournal
from lanehost.journal.journal import Journal, journaling
from lanehost.journal.records import JournalModel
from lanehost.logs import set_up_logs
from lanehost.metrics.metrics import Metrics
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.supervisor import RANK_COMMAND, running_rank_groups
from lanehost.recorder.recorder import Recorder, recorded, recording
from lanehost.recorder.records import Header
from lanehost.recorder.writer import prepare_folder
from lanehost.settings import ServeSettings
from lanehost.signals import StopSignals
from lanehost.tasks import beside, end_all, to_the_end
from lanehost.text.model_text import ModelText, load_model_text

log = structlog.get_logger()

# How long the last events of open streams may take to leave.
_GRACE_S = 2.0


class ExitCode(IntEnum):
    """What the process ends with."""

    OK = 0
    RANK_GROUP_LOST = 3
    FORCED = 4
    INTERNAL_FAULT = 5


def run(settings: ServeSettings) -> int:
    """Serve until told to stop; returns the process's exit code.

    Raises:
        StartupFailed: the server cannot start; the message says what to do.
    """
    set_up_logs(is_json=settings.log_json)
    console = StartupConsole(out=sys.stdout, err=sys.stderr)
    return asyncio.run(Master(settings, console).run())


class Master:
    """One run of the server."""

    def __init__(self, settings: ServeSettings, console: StartupConsole) -> None:
        """Build nothing yet.

        Args:
            settings: Everything the operator chose.
            console: Where progress and the addresses are shown.
        """
        self._settings = settings
        self._console = console
        self._stop_asked = asyncio.Event()
        self._is_started = False

    async def run(self) -> int:
        """Serve until a signal or a fault ends it; returns the exit code.

        Raises:
            StartupFailed: the server cannot start.
        """
        main = asyncio.current_task()
        assert main is not None

        def ask_to_stop() -> None:
            log.info("stop_asked", phase="serving" if self._is_started else "starting")
            self._stop_asked.set()
            if not self._is_started:
                main.cancel()

        def insist() -> None:
            main.cancel()

        with StopSignals(on_first=ask_to_stop, on_second=insist) as signals:
            try:
                return await self._serve_to_exit_code()
            except asyncio.CancelledError:
                if signals.num_received == 0:
                    raise
                return ExitCode.OK if signals.num_received == 1 else ExitCode.FORCED

    async def _serve_to_exit_code(self) -> ExitCode:
        try:
            await self._serve()
        except RankGroupLost as lost:
            self._console.lost(lost)
            return ExitCode.RANK_GROUP_LOST
        except StartupFailed:
            raise
        except Exception as bug:  # noqa: BLE001 - the last border: logged, and the process ends
            record_fault(bug)
            return ExitCode.INTERNAL_FAULT
        return ExitCode.OK

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            if self._settings.record is not None:
                prepare_folder(self._settings.record.folder)
            folder = await self._open_disk(stack)
            metrics = self._new_metrics()
            doors = await stack.enter_async_context(Doors(metrics, self._settings))
            with self._console:
                text, epochs = await self._load(stack, metrics)
            text = known_to_ranks(text, epochs.first.facts.images)
            card = make_card(self._settings, text, epochs.first.facts)
            journal = self._open_journal(stack, text, epochs.first.facts)
            desk = self._make_desk(journal, folder, text, epochs.first.facts)
            epochs, recorder = await self._record(stack, epochs)
            health = HealthObserver(metrics.gate, doors)
            others = (recorder, self._make_self_check(desk))
            observers = Observers(
                metrics.observer, health, *(other for other in others if other is not None)
            )
            engine = Engine(
                epochs,
                desk=desk,
                clock=time.monotonic,
                settings=self._settings.engine,
                observer=observers,
            )
            door = self._make_door(card, text, desk)
            metrics.watch(
                engine,
                desk=desk,
                settings=self._settings.engine,
                observers=observers,
                journal=journal,
                held=door.images,
            )
            door.readmit(journal)
            metrics.gate.open(door)
            doors.set_serving()
            if folder is not None and isinstance(desk.disk, EngineDisk):
                admin = AdminServicer(desk.disk)
                await stack.enter_async_context(serving_admin(folder.path, admin))
            self._is_started = True
            self._console.ready(card, doors.addresses)
            await self._run_to_the_end(engine, desk, door=door, doors=doors)
            # Before the ranks: the last events of open streams still leave by the doors.
            await doors.stop(grace_s=_GRACE_S)

    def _new_metrics(self) -> Metrics:
        return Metrics(
            clock=time.monotonic,
            version=version("lanehost"),
            scopes=tuple(self._settings.weights) or ("",),
        )

    async def _load(self, stack: AsyncExitStack, metrics: Metrics) -> tuple[ModelText, Epochs]:
        ranks = self._settings.ranks
        running = running_rank_groups(
            ranks,
            on_progress=self._console.show,
            rank_command=self._rank_command(),
            watcher=metrics.epochs,
        )
        text = asyncio.create_task(asyncio.to_thread(load_model_text, ranks.model_path))
        groups = asyncio.create_task(stack.enter_async_context(running))
        try:
            # Whichever fails first says so at once: the other need not be waited for.
            await asyncio.wait({text, groups}, return_when=asyncio.FIRST_EXCEPTION)
            for done in (text, groups):
                if done.done():
                    done.result()
            first = await groups.result().next_backend()
            return text.result(), Epochs(first=first, later=groups.result())
        finally:
            await to_the_end(end_all(text, groups))

    async def _record(
        self, stack: AsyncExitStack, epochs: Epochs
    ) -> tuple[Epochs, Recorder | None]:
        """Put the recorder between the engine and the ranks, if it was asked for."""
        record, ranks = self._settings.record, self._settings.ranks
        if record is None:
            return epochs, None
        header = Header(
            build=version("lanehost"),
            run_id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}",
            file_number=1,
            keeps_prompts=record.keeps_prompts,
            keeps_images=record.keeps_images,
            model_path=str(ranks.model_path.absolute()),
            dtype=ranks.dtype,
            weights=ranks.weights,
            device=ranks.device,
            facts=epochs.first.facts,
        )
        recorder = await stack.enter_async_context(
            recording(
                record,
                header,
                redaction_key=secrets.token_bytes(32),
                clock_ns=time.monotonic_ns,
            )
        )
        return recorded(epochs, recorder), recorder

    def _make_door(self, card: ModelCard, text: ModelText, desk: Desk) -> AdmissionDoor:
        settings, clock = self._settings, time.monotonic
        return AdmissionDoor(
            card=card,
            text=text,
            desk=desk,
            turnstile=Turnstile(settings.keys, settings.line),
            clock=clock,
            images=PromptImages(
                text, settings=settings.images, weights=settings.weights, clock=clock
            ),
        )

    def _open_journal(
        self, stack: AsyncExitStack, text: ModelText, facts: GroupFacts
    ) -> Journal | None:
        """Read what an earlier master left, and go on writing, if it was asked for."""
        if self._settings.journal is None:
            return None
        model = JournalModel(
            weights_digest=facts.weights_digest,
            config_digest=facts.config_digest,
            text_digest=text.tokenizer.digest,
            weights=facts.weights,
            dtype=facts.dtype,
            device=facts.device,
            vocab_size=facts.vocab_size,
            eos_token_ids=tuple(sorted(text.eos_token_ids)),
        )
        return stack.enter_context(
            journaling(self._settings.journal, version("lanehost"), model, wall_clock=time.time)
        )

    async def _open_disk(self, stack: AsyncExitStack) -> Folder | None:
        """Own the folder of the disk tier from before the ranks are there until they are gone."""
        if self._settings.disk is None:
            return None
        return await stack.enter_async_context(owning_folder(self._settings.disk.folder.absolute()))

    def _make_desk(
        self, journal: Journal | None, folder: Folder | None, text: ModelText, facts: GroupFacts
    ) -> Desk:
        """Make what door and engine share."""
        inbox = Inbox()
        disk: Disk = NoDisk()
        if self._settings.disk is not None and folder is not None:
            digest, build = text.tokenizer.digest, version("lanehost")
            identity = model_identity(facts, text_digest=digest, build=build)
            disk = build_disk(folder, self._settings.disk, facts, identity, inbox)
        return Desk(
            line=Line(self._settings.line, self._settings.weights),
            inbox=inbox,
            journal=journal or NoJournal(),
            disk=disk,
        )

    def _make_self_check(self, desk: Desk) -> SelfCheck | None:
        disk = self._settings.disk
        if disk is None or not disk.self_check or not isinstance(desk.disk, EngineDisk):
            return None
        return SelfCheck(
            disk.self_check,
            desk.disk,
            line=desk.line,
            inbox=desk.inbox,
            clock=time.monotonic,
            call_soon=asyncio.get_running_loop().call_soon,
        )

    def _rank_command(self) -> tuple[str, ...]:
        return (*RANK_COMMAND, "--log-json") if self._settings.log_json else RANK_COMMAND

    async def _run_to_the_end(
        self, engine: Engine, desk: Desk, *, door: AdmissionDoor, doors: Doors
    ) -> None:
        try:
            await self._run_engine(engine, desk.inbox, door=door, doors=doors)
        except Exception as error:
            # Told to those who come in the grace; those who were here know it already.
            _close(door, doors, error)
            await doors.stop(grace_s=_GRACE_S)
            raise
        finally:
            desk.disk.close()

    async def _run_engine(
        self, engine: Engine, inbox: Inbox, *, door: AdmissionDoor, doors: Doors
    ) -> None:
        async with beside(self._drain_when_asked(inbox, door=door, doors=doors)):
            await engine.run()

    async def _drain_when_asked(self, inbox: Inbox, *, door: AdmissionDoor, doors: Doors) -> None:
        await self._stop_asked.wait()
        # Said before it is done: who sends requests here needs a moment to hear of it.
        doors.announce_end()
        await asyncio.sleep(self._settings.drain_grace_s)
        log.info("drain_started", timeout_s=self._settings.drain_timeout_s)
        door.close(Draining("this server is ending and takes no new requests"))
        inbox.put(Drain())
        await asyncio.sleep(self._settings.drain_timeout_s)
        log.warning("drain_timeout", timeout_s=self._settings.drain_timeout_s)
        inbox.put(Stop(Draining("the server ended before this reply did (--drain-timeout)")))


def _close(door: AdmissionDoor, doors: Doors, error: Exception) -> None:
    """Take no more requests: health, and every later request, say so."""
    doors.set_not_serving()
    door.close(error if isinstance(error, LanehostError) else record_fault(error))


def make_card(settings: ServeSettings, text: ModelText, facts: GroupFacts) -> ModelCard:
    """Describe the model from what its text side and its ranks say.

    Raises:
        StartupFailed: the two do not speak of the same model.
    """
    if text.vocab_size != facts.vocab_size:
        raise StartupFailed(
            f"the tokenizer's files say {text.vocab_size} token ids, the weights "
            f"{facts.vocab_size}: {settings.ranks.model_path} is not one model"
        )
    return ModelCard(
        name=settings.model_name or text.name,
        context_length=min(text.context_length, facts.context_length),
        vocab_size=facts.vocab_size,
        eos_token_ids=tuple(sorted(text.eos_token_ids)),
        weights_digest=facts.weights_digest,
        config_digest=facts.config_digest,
        world_size=facts.world_size,
        num_lanes=facts.num_lanes,
        kv_tokens=facts.kv_tokens,
        max_waiting=settings.line.max_waiting,
        max_waiting_tokens=settings.line.max_waiting_tokens,
        max_streams=settings.line.max_streams,
        has_prompt_cache=settings.engine.prompt_cache,
        default_sampling=DEFAULT_SAMPLING,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        dtype=facts.dtype,
        weights=facts.weights,
        version=version("lanehost"),
        images=image_card(text.images, settings.images.limits),
    )
