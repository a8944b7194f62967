import inspect

from lanehost.rank_group.image_interface import ImageOutcome, ImageReason, RankImages
from lanehost.recorder.images import RecordingImages
from tests.support.images import prepared


class Ranks:
    """Implements `RankImages`: notes what it is asked."""

    def __init__(self):
        self.asked = []
        self.say = None

    def tell(self, on_outcome):
        self.say = on_outcome

    def encode(self, image_id, image):
        self.asked.append(("encode", image_id, image))

    def cancel(self, image_id):
        self.asked.append(("cancel", image_id))

    def drop(self, image_id):
        self.asked.append(("drop", image_id))


class Notes:
    def __init__(self):
        self.told = []

    def image_encoded(self, epoch, image_id, digest):
        self.told.append(("encoded", epoch, image_id, digest))

    def image_dropped(self, epoch, image_id):
        self.told.append(("dropped", epoch, image_id))


def recorded():
    ranks, notes = Ranks(), Notes()
    images, heard = RecordingImages(ranks, notes, epoch=3), []
    images.tell(lambda outcome: heard.append((outcome, list(notes.told))))
    return images, ranks, notes, heard


def test_all_is_forwarded_as_it_came():
    images, ranks, _, heard = recorded()
    images.encode(1, prepared(1))
    images.cancel(1)
    images.drop(1)
    assert ranks.asked == [("encode", 1, prepared(1)), ("cancel", 1), ("drop", 1)]
    outcome = ImageOutcome(image_id=1)
    ranks.say(outcome)
    assert heard[0][0] == outcome
    members = {name for name in vars(RankImages) if not name.startswith("_")}
    assert members == {"tell", "encode", "cancel", "drop"}
    assert all(inspect.isfunction(getattr(RecordingImages, name)) for name in members)


def test_an_image_is_noted_once_its_rows_are_there_and_before_anybody_hears_it():
    images, ranks, notes, heard = recorded()
    images.encode(7, prepared(1))
    assert notes.told == []
    ranks.say(ImageOutcome(image_id=7))
    assert heard[0][1] == [("encoded", 3, 7, prepared(1).digest)]
    images.drop(7)
    assert notes.told[-1] == ("dropped", 3, 7)


def test_one_that_could_not_be_encoded_is_not_noted():
    images, ranks, notes, heard = recorded()
    images.encode(7, prepared(1))
    ranks.say(ImageOutcome(image_id=7, reason=ImageReason.FAILED, rank=0))
    assert notes.told == []
    assert len(heard) == 1
