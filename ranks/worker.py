"""What computes on a rank: loads its part of the model, forms the group, runs plans."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import grpc
import structlog
import torch

from ranks.abort import Abort
from ranks.device import choose_device, choose_num_threads, free_bytes
from ranks.disk.file_thread import Answer, FileThread
from ranks.disk.folder import Folder
from ranks.disk.snapshot import PoolLoan, bind
from ranks.errors import OutOfRoom, RankError
from ranks.executor import Executor, Held
from ranks.images.encoder import Encoder
from ranks.images.encoder_thread import Answer as ImageAnswer
from ranks.images.encoder_thread import EncoderThread
from ranks.images.room import ImageRoom, image_room
from ranks.images.store import ImageStore
from ranks.kv_store import KvStore
from ranks.lane_table import Limits
from ranks.models.loading import load_and_digest
from ranks.models.native_weights import Weights
from ranks.models.registry import (
    CausalLM,
    Checkpoint,
    choose_products,
    load_model,
    move_encoder,
    open_checkpoint,
)
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.process_group import (
    Group,
    choose_collective,
    collective_bytes,
    form_group,
    offer_collective,
)
from ranks.session import OnProgress
from ranks.settings import RankSettings
from ranks.shards import Network, Place, cut_shards
from ranks.shared_group import OFFER_TIMEOUT_S, Offer
from ranks.store import MasterStore
from ranks.wire.file_messages import FileOrder
from ranks.wire.image_messages import ImageFacts, ImageOrder
from ranks.wire.messages import Form, Load, Loaded

log = structlog.get_logger()


class ModelWorker:
    """A rank that runs a real model."""

    def __init__(
        self,
        settings: RankSettings,
        channel: grpc.Channel,
        *,
        dress: Callable[[CausalLM], CausalLM] = lambda model: model,
    ) -> None:
        """Take the channel to the master, for the rendezvous; the caller closes it.

        `dress` may put something around the model: it then fails on purpose (`ranks/faults`).
        """
        self._dress = dress
        self._settings = settings
        self._channel = channel
        self._model: CausalLM | None = None
        self._offer: Offer | None = None
        self._collective: str | None = None
        self._group: Group | None = None
        self._until_freed = ExitStack()
        self._executor: Executor | None = None
        self._files = FileThread(rank=settings.rank, world_size=settings.world_size)
        self._images = EncoderThread()

    def load(self, order: Load, on_progress: OnProgress) -> Loaded:
        """Load this rank's part of the model.

        Raises:
            BadCheckpoint: The files cannot be used.
            BadDevice: The device cannot be had.
        """
        rank, world_size = self._settings.rank, self._settings.world_size
        num_threads = choose_num_threads(
            order.num_threads, world_size=self._settings.num_ranks_here
        )
        torch.set_num_threads(num_threads)
        device = self._take_device(order.device)
        store = self._store(OFFER_TIMEOUT_S)
        self._offer = offer_collective(store, device, rank=rank, world_size=world_size)
        checkpoint = open_checkpoint(Path(order.model_path))
        config, weights = checkpoint.config, Weights(order.weights)
        load = partial(
            load_model,
            checkpoint,
            shards=cut_shards(config.num_heads, rank=rank, world_size=world_size),
            device=device,
            dtype=choose_products(order.dtype, device, checkpoint, weights=weights),
            weights=weights,
        )
        loaded = load_and_digest(checkpoint, lambda tell: load(on_progress=tell), on_progress)
        self._model = self._dress(loaded.model)
        self._place_encoder(order, self._model, checkpoint)
        if self._model.dtype == torch.int8:
            # The library has threads of its own, beside which those of OpenMP would spin.
            torch.set_num_threads(1)
        self._collective = choose_collective(store, device, rank=rank, world_size=world_size)
        _log_loaded(self._model, num_threads)
        return self._told(
            order,
            self._model,
            weights_digest=loaded.weights_digest,
            config_digest=checkpoint.config_digest(weights),
        )

    def _told(
        self, order: Load, model: CausalLM, *, weights_digest: str, config_digest: str
    ) -> Loaded:
        assert self._collective is not None
        ranks_here, world_size = self._settings.num_ranks_here, self._settings.world_size
        room = _image_room(order, model)
        widest = room.widest(order.max_step_tokens, order.num_lanes)
        longest = room.longest(order.max_step_tokens, order.num_lanes)
        taken = model.step_bytes(widest) + collective_bytes(self._collective, world_size)
        return Loaded(
            weights_digest=weights_digest,
            config_digest=config_digest,
            geometry=model.geometry,
            vocab_size=model.config.vocab_size,
            context_length=model.config.context_length,
            kv_bytes_per_block=model.kv_bytes_per_block(order.block_size),
            step_bytes=taken + room.num_bytes,
            step_bytes_per_block=model.step_bytes_per_block(order.block_size, longest),
            free_bytes=free_bytes(model.device, world_size=ranks_here),
            dtype=str(model.dtype).removeprefix("torch."),
            device=model.device.type,
            collective=self._collective,
            weights=model.weights,
            kv_layout=model.kv_layout,
            num_layers=model.num_layers,
            image_facts=_image_facts(model),
        )

    def form(self, order: Form, abort: Abort) -> None:
        """Make the KV pool and meet the other ranks.

        Raises:
            FellowLost: The ranks did not meet in time.
            GivenUp: There was an abort meanwhile.
            OutOfRoom: The pool does not fit.
            RendezvousFailed: The store does not serve this epoch, mostly since it is over.
        """
        model = self._model
        if model is None or self._collective is None:
            raise RankError("Form came before Load")
        _claim_room(order, model)
        kv = model.new_kv_store(order.num_blocks, order.block_size)
        self._until_freed.callback(kv.free)
        store = self._store(order.collective_timeout_s)
        with abort.calling(store.give_up):
            self._group = form_group(
                store,
                Place(
                    epoch=order.epoch,
                    rank=self._settings.rank,
                    world_size=self._settings.world_size,
                    network=Network(
                        host=self._settings.bind_host, interface=self._settings.interface
                    ),
                ),
                collective=self._collective,
                device=model.device,
                timeout_s=order.collective_timeout_s,
                abort=abort,
            )
        self._executor = Executor(
            model=model,
            held=Held(kv=kv, image_rows=self._begin_images(order, model, abort).find),
            collective=self._group,
            world_size=self._settings.world_size,
            limits=_limits(order, model),
            clock_ns=time.perf_counter_ns,
        )
        if order.disk_folder is not None:
            self._begin_files(order, Path(order.disk_folder), kv, abort)

    def _begin_images(self, order: Form, model: CausalLM, abort: Abort) -> ImageStore:
        store = ImageStore()
        self._images.begin(order.epoch, store, Encoder(model), abort)
        self._until_freed.callback(self._images.let_go)
        return store

    def _begin_files(self, order: Form, path: Path, kv: KvStore, abort: Abort) -> None:
        assert self._model is not None
        rank, world_size = self._settings.rank, self._settings.world_size
        loan = PoolLoan(
            bind(self._model.state, kv.pool),
            num_blocks=order.num_blocks,
            block_size=order.block_size,
        )
        folder = Folder(path, rank=rank, world_size=world_size)
        self._files.begin(order.epoch, folder, self._model.state, loan, abort)
        # Before the pool is freed: what was pushed last comes first.
        self._until_freed.callback(self._files.let_go)

    def take_file(self, order: FileOrder, answer: Answer) -> None:
        """Have a work on files done beside the steps; returns at once, from any thread."""
        self._files.take(order, answer)

    def take_image(self, order: ImageOrder, answer: ImageAnswer) -> None:
        """Have a work on images done beside the steps; returns at once, from any thread."""
        self._images.take(order, answer)

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run one plan, or refuse it whole."""
        if self._executor is None:
            raise RankError("a plan came before Form")
        return self._executor.run(plan)

    def num_stages(self) -> int:
        """Count what the model has computed so far, from any thread."""
        return 0 if self._model is None else self._model.num_stages()

    def leave(self) -> None:
        """Leave the group, if there is one: its lanes are gone, the model stays."""
        self._executor = None
        group, self._group = self._group, None
        if group is not None:
            group.leave()

    def free(self) -> None:
        """Free the KV pool, so that there is room for the next one."""
        self._until_freed.close()
        if self._model is not None and self._model.device.type == "cuda":
            # torch would keep the memory for itself, and the next pool not be found to fit.
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Leave the group, if there is one."""
        self.leave()
        self._files.close()
        self._images.close()
        if self._offer is not None:
            self._offer.close()

    def _place_encoder(self, order: Load, model: CausalLM, checkpoint: Checkpoint) -> None:
        if model.images is None or order.encoder_device == "auto":
            return
        device = self._choose_device(order.encoder_device)
        if device != model.device:
            move_encoder(model, checkpoint, device)
        log.info("encoder_placed", device=str(device), model_device=str(model.device))

    def _choose_device(self, name: str) -> torch.device:
        ranks_here = self._settings.num_ranks_here
        return choose_device(name, rank=self._settings.rank % ranks_here, world_size=ranks_here)

    def _take_device(self, name: str) -> torch.device:
        device = self._choose_device(name)
        if device.type == "cuda":
            # What names no device (NCCL, torch's own buffers) must not land on the first one.
            torch.cuda.set_device(device)
        return device

    def _store(self, timeout_s: float) -> MasterStore:
        return MasterStore(self._channel, token=self._settings.token, timeout_s=timeout_s)


def _log_loaded(model: CausalLM, num_threads: int) -> None:
    is_exact = model.are_rows_exact()
    log.info(
        "model_loaded",
        geometry=model.geometry,
        num_threads=num_threads,
        products=model.products,
        weights=model.weights,
        row_exact=is_exact,
    )
    if not is_exact:
        # A reply may then depend on who shares its steps (ADR 2).
        log.warning("rows_not_exact", device=str(model.device), num_threads=num_threads)


def _image_room(order: Load | Form, model: CausalLM) -> ImageRoom:
    return image_room(
        model,
        max_staged_tokens=order.max_staged_tokens,
        image_cache_tokens=order.image_cache_tokens,
    )


def _claim_room(order: Form, model: CausalLM) -> None:
    """Find room for the KV pool and for images."""
    needed = model.kv_bytes_per_block(order.block_size) * order.num_blocks
    room = _image_room(order, model)
    # The master shared out what was free when all had loaded. Ranks of one machine make
    # their pools at once, so the part of one cannot be measured any more: the whole is.
    free = free_bytes(model.device, world_size=1)
    if needed + room.num_bytes > free:
        raise OutOfRoom(
            f"the KV pool needs {needed} bytes, and images {room.num_bytes}, "
            f"this machine has {free} free"
        )
    if room.num_bytes:
        log.info(
            "staging_claimed",
            epoch=order.epoch,
            max_staged_tokens=order.max_staged_tokens,
            staged_bytes=room.staged_bytes,
            image_cache_tokens=order.image_cache_tokens,
            kept_bytes=room.kept_bytes,
        )


def _image_facts(model: CausalLM) -> ImageFacts | None:
    facts = model.images
    if facts is None:
        return None
    return ImageFacts(
        num_tokens=facts.num_tokens,
        token_id=facts.token_id,
        width=facts.width,
        height=facts.height,
    )


def _limits(order: Form, model: CausalLM) -> Limits:
    return Limits(
        epoch=order.epoch,
        num_lanes=order.num_lanes,
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        max_step_tokens=order.max_step_tokens,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        num_layers=model.num_layers,
        max_staged_tokens=0 if model.images is None else order.max_staged_tokens,
    )
