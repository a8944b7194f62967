"""An engine over fake ranks with its metrics, read from the page as Prometheus would."""

from prometheus_client import parser

from lanehost.door.prompt_images import PromptImages
from lanehost.engine.observer import EngineObserver, Observers
from lanehost.metrics.metrics import Metrics
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import EngineSettings
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_text import IMAGES, make_text

VERSION = "1.2.3"


def read_page(text: str) -> dict[tuple[str, ...], float]:
    """Return every value of a page by its name and the values of its labels, sorted by name."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


class MeteredRig(EngineRig):
    """An `EngineRig` whose metrics are watched."""

    def __init__(
        self,
        facts: GroupFacts | None = None,
        *,
        scopes: tuple[str, ...] = ("",),
        others: tuple[EngineObserver, ...] = (),
        max_drafts: int = 0,
        **options: bool,
    ) -> None:
        self.metrics = Metrics(clock=self._now_s, version=VERSION, scopes=scopes)
        self.observers = Observers(self.metrics.observer, *others)
        super().__init__(facts, observer=self.observers, max_drafts=max_drafts, **options)
        self.held = PromptImages(make_text(images=IMAGES))
        self.metrics.watch(
            self.engine,
            desk=self.desk,
            settings=EngineSettings(max_drafts=max_drafts),
            observers=self.observers,
            held=self.held,
        )

    def _now_s(self) -> float:
        return self.clock()

    def page(self) -> str:
        return self.metrics.page("").body.decode()

    def values(self) -> dict[tuple[str, ...], float]:
        return read_page(self.page())

    def value(self, name: str, *labels: str) -> float:
        """Return one value; labels in the order of their names."""
        return self.values()[f"lanehost_{name}", *labels]

    async def step(self) -> None:
        """Let the oldest step come back, if one is out, and all that follows from it happen."""
        if self.ranks._outcomes:
            self.ranks.let_step_back()
        await settle_loop()

    def sum(self, name: str) -> float:
        """Return the sum over all labels."""
        return sum(value for key, value in self.values().items() if key[0] == f"lanehost_{name}")
