"""The one door, and what comes out behind it."""

from lanehost.admission.line import Line
from lanehost.door.door import AdmissionDoor
from lanehost.door.prompt_images import PromptImages
from lanehost.door.turnstile import Turnstile
from lanehost.engine.desk import Desk
from lanehost.engine.inbox import Arrived, Inbox
from lanehost.journal.interface import NoJournal
from lanehost.settings import LineSettings
from tests.support.cards import make_card
from tests.support.fake_text import IMAGES, make_text


class DoorRig:
    """A door; without an engine its jobs stay in the line.

    With `images`, the settings for them, its model takes some.
    """

    def __init__(
        self,
        *,
        has_template=True,
        engine=None,
        keys=None,
        card=None,
        journal=None,
        images=None,
        **bounds,
    ):
        settings = LineSettings(**bounds)
        self.engine = engine
        self.inbox = Inbox() if engine is None else engine.inbox
        weights = {} if keys is None else keys.weights
        self.line = Line(settings, weights) if engine is None else engine.line
        self.now_s = 100.0
        self.journal = journal or NoJournal()
        text = make_text(has_template=has_template, images=None if images is None else IMAGES)
        self.images = PromptImages(text, settings=images, weights=weights, clock=lambda: self.now_s)
        self.door = AdmissionDoor(
            card=card or make_card(),
            text=text,
            images=self.images,
            desk=Desk(line=self.line, inbox=self.inbox, journal=self.journal),
            turnstile=Turnstile(keys, settings),
            clock=lambda: self.now_s,
        )

    async def arrived(self):
        return [c.ticket for c in await self.inbox.take_all() if isinstance(c, Arrived)]
