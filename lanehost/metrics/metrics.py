"""The metrics of one run of the server: what is counted, what is seen, and the page.

    gate       both doors come in through it   ┐
    observer   the engine tells it of jobs      ├─▶ tally ─┐
               and steps                        ┘          ├─▶ page
    watch      line, engine: read when asked ──────────────┘

All of it happens on the event loop that runs the engine, so a page is one moment's truth.
The registry is this object's own: two servers in one process share no number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from lanehost.door.prompt_images import PromptImages
from lanehost.engine.desk import Desk
from lanehost.engine.engine import Engine
from lanehost.engine.observer import Observers
from lanehost.journal.journal import Journal
from lanehost.metrics.counted import COUNTED
from lanehost.metrics.disk import DISK
from lanehost.metrics.epochs import MetricsEpochs
from lanehost.metrics.family import Family, Kind, gauge
from lanehost.metrics.gate import CountingGate
from lanehost.metrics.images import IMAGES, STAGED
from lanehost.metrics.observer import MetricsObserver
from lanehost.metrics.seen import SEEN, Sight
from lanehost.metrics.tally import Tally
from lanehost.settings import EngineSettings

_OPENMETRICS = "application/openmetrics-text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What `/metrics` answers."""

    content_type: str
    body: bytes


class Metrics:
    """Counts from the start; sees more once there is something to watch."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        version: str,
        scopes: tuple[str, ...] = ("",),
    ) -> None:
        """Begin with zeros.

        Args:
            clock: Seconds that only rise, the engine's clock.
            version: Of this program.
            scopes: Who may send requests.
        """
        self._tally = Tally.of(scopes)
        self._version = version
        self._sight: Sight | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.gate = CountingGate(self._tally.refused)
        self.observer = MetricsObserver(self._tally, clock=clock, scopes=scopes)
        self.epochs = MetricsEpochs(self._tally)

    def watch(
        self,
        engine: Engine,
        *,
        desk: Desk,
        settings: EngineSettings,
        observers: Observers,
        journal: Journal | None = None,
        held: PromptImages | None = None,
    ) -> None:
        """Read these from now on, whenever a page is asked for.

        Args:
            engine: Its lanes, blocks and prompt cache.
            desk: Who waits, and the prompt cache on disk.
            settings: What the operator chose.
            observers: Who looks on beside these metrics.
            journal: Of open streams, if there is one.
            held: The images of requests, if anybody prepares some.
        """
        self._sight = Sight(
            engine=engine,
            line=desk.line,
            settings=settings,
            observers=observers,
            told=self.observer,
            journal=journal,
            disk=desk.disk.tier,
            held=held,
        )

    def page(self, accept: str) -> Page:
        """Write all metrics; in the form of OpenMetrics for whoever takes that.

        What else `accept` says is not looked at: nothing that a client sends can fail.
        """
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accept else "")
        return Page(content_type=content_type, body=encode(self._registry))

    def collect(self) -> Iterator[Metric]:
        """Yield every metric: for the registry."""
        yield from (family.expose(self) for family in STANDING)
        yield from (family.expose(self._tally) for family in COUNTED + STAGED)
        if self._sight is not None:
            sight = self._sight
            yield from (family.expose(sight) for family in SEEN + IMAGES + DISK)

    @property
    def version(self) -> str:
        """Of this program."""
        return self._version

    @property
    def is_draining(self) -> bool:
        """Whether it has been told to end: soon it takes no more requests, or does not already."""
        return self.gate.is_ending


STANDING: tuple[Family[Metrics], ...] = (
    Family(
        name="lanehost_build_info",
        kind=Kind.INFO,
        meaning="Which lanehost this is.",
        labels=("version",),
        read=lambda metrics: [((metrics.version,), 1)],
    ),
    gauge(
        "lanehost_serving",
        "1 while requests are run: the ranks are there, and no drain has begun.",
        lambda metrics: metrics.gate.is_serving(),
    ),
    gauge(
        "lanehost_draining",
        "1 from the signal to end on: requests are still taken for --drain-grace.",
        lambda metrics: metrics.is_draining,
    ),
)

FAMILIES = STANDING + COUNTED + STAGED + SEEN + IMAGES + DISK
