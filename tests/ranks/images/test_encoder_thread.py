"""The thread for images: each answered once and in order, whatever is cancelled, fails or ends."""

import queue
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ranks.abort import Abort
from ranks.errors import MasterLost
from ranks.images.encoder import NUM_THREADS, Encoder
from ranks.images.encoder_thread import MAX_WAITING, EncoderThread
from ranks.images.store import ImageStore
from ranks.wire.image_messages import CancelImage, DropImage, ImageDone, ImageFault, ImageOrder
from tests.support.image_models import ImageModel, image


class Rig:
    """A thread, and a model with a gate that a test may close."""

    def __init__(self):
        self.thread = EncoderThread()
        self.model = ImageModel()
        self.answers = queue.Queue()

    def begin(self, epoch=1):
        self.store, self.abort = ImageStore(), Abort()
        self.thread.begin(epoch, self.store, Encoder(self.model), self.abort)

    def order(self, *works, epoch=1):
        for work in works:
            self.thread.take(ImageOrder(epoch=epoch, work=work), self.answers.put)

    def hold(self, image_id=1):
        """Have an image begun, and kept from its end."""
        self.model.gate.clear()
        self.model.has_begun.clear()
        self.order(image(image_id))
        assert self.model.has_begun.wait(10)

    def go_on(self):
        self.model.gate.set()

    def hear(self, count=1):
        return [self.answers.get(timeout=10) for _ in range(count)]

    def told(self, count):
        return [(one.image_id, one.fault) for one in self.hear(count)]


@pytest.fixture
def rig():
    rig = Rig()
    rig.begin()
    yield rig
    rig.go_on()
    rig.thread.close()


def test_an_image_is_encoded_kept_and_told_with_its_digest_and_time(rig):
    rig.order(image(3))
    (done,) = rig.hear()
    expected = Encoder(ImageModel()).encode(image(3))
    assert done == ImageDone(
        epoch=1,
        image_id=3,
        num_tokens=2,
        rows_digest=expected.digest,
        took_ns=done.took_ns,
    )
    assert done.took_ns > 0
    assert rig.store.find(3).equal(expected.rows)
    assert rig.model.num_threads == NUM_THREADS


def test_nobody_who_orders_waits_and_answers_come_in_the_order_of_the_orders(rig):
    rig.hold(1)
    rig.order(image(2), image(3), CancelImage(image_id=2), image(4))
    assert rig.answers.empty()
    rig.go_on()
    assert rig.told(4) == [(1, None), (2, ImageFault.CANCELLED), (3, None), (4, None)]


def test_a_cancel_takes_effect_before_the_next_image_and_not_on_one_that_has_begun(rig):
    rig.hold(1)
    rig.order(image(2), image(3))
    rig.order(CancelImage(image_id=1), CancelImage(image_id=2), CancelImage(image_id=9))
    rig.go_on()
    assert rig.told(3) == [(1, None), (2, ImageFault.CANCELLED), (3, None)]
    assert rig.model.encoded == [1, 3]
    assert (rig.store.find(1) is None, rig.store.find(2) is None) == (False, True)


def test_a_cancel_of_one_that_is_done_leaves_its_rows(rig):
    rig.order(image(1))
    rig.hear()
    rig.order(CancelImage(image_id=1))
    assert rig.store.find(1) is not None


def test_what_is_dropped_has_no_rows_whether_it_waits_is_encoded_or_is_there(rig):
    rig.order(image(1))
    rig.hear()
    rig.hold(2)
    rig.order(image(3), *(DropImage(image_id=one) for one in (1, 2, 3)))
    rig.go_on()
    assert rig.told(2) == [(2, None), (3, ImageFault.CANCELLED)]
    assert [rig.store.find(one) for one in (1, 2, 3)] == [None] * 3
    assert rig.model.encoded == [1, 2]


def test_an_image_that_fails_harms_no_other_and_is_logged_without_words(rig):
    rig.model.fails = {2: ValueError("pixel 1234"), 4: MemoryError()}
    rig.model.spoils = {3}
    with capture_logs() as logs:
        rig.order(*map(image, range(1, 6)))
        told = rig.told(5)
    assert told == [
        (1, None),
        (2, ImageFault.FAILED),
        (3, ImageFault.NOT_FINITE),
        (4, ImageFault.OUT_OF_MEMORY),
        (5, None),
    ]
    (event,) = [log for log in logs if log["event"] == "image_failed"]
    assert (event["image_id"], event["error"]) == (2, "ValueError")
    assert "image_models.py" in event["trace"]
    assert "1234" not in str(event)


def test_too_many_are_refused_in_their_turn_and_their_pixels_let_go(rig):
    rig.hold(1)
    rig.order(*map(image, range(2, MAX_WAITING + 4)))
    rig.order(CancelImage(image_id=2), image(MAX_WAITING + 9))
    rig.go_on()
    told = dict(rig.told(MAX_WAITING + 4))
    refused = [image_id for image_id, fault in told.items() if fault is ImageFault.BUSY]
    assert refused == [MAX_WAITING + 2, MAX_WAITING + 3]
    assert told[2] is ImageFault.CANCELLED
    assert told[MAX_WAITING + 9] is None


def test_a_number_that_does_not_rise_is_refused(rig):
    rig.order(image(5), image(5), image(4), image(6))
    assert rig.told(4) == [
        (5, None),
        (5, ImageFault.FAILED),
        (4, ImageFault.FAILED),
        (6, None),
    ]
    assert rig.model.encoded == [5, 6]


def test_images_of_another_epoch_are_not_begun(rig):
    rig.order(image(1), epoch=2)
    assert rig.told(1) == [(1, ImageFault.CANCELLED)]
    rig.abort.set()
    rig.order(image(2))
    assert rig.told(1) == [(2, ImageFault.CANCELLED)]
    assert rig.model.encoded == []


def test_an_abort_ends_what_waits_and_not_what_has_begun(rig):
    rig.hold(1)
    rig.order(image(2))
    rig.abort.set()
    rig.go_on()
    assert rig.told(2) == [(1, None), (2, ImageFault.CANCELLED)]


def test_the_next_epoch_starts_without_rows_and_counts_anew(rig):
    rig.order(image(7))
    rig.hear()
    first = rig.store
    rig.hold(8)
    rig.order(image(9))
    rig.thread.let_go()
    assert first.find(7) is None
    rig.begin(epoch=2)
    rig.order(image(1), epoch=2)
    rig.order(DropImage(image_id=1), CancelImage(image_id=1), image(2), epoch=1)
    rig.go_on()
    assert rig.told(4) == [
        (8, None),
        (9, ImageFault.CANCELLED),
        (1, None),
        (2, ImageFault.CANCELLED),
    ]
    assert first.find(8) is None
    assert rig.store.find(1) is not None


def test_what_waits_of_an_old_epoch_takes_no_place_in_the_next(rig):
    rig.hold(1)
    rig.order(*map(image, range(2, MAX_WAITING + 2)))
    rig.thread.let_go()
    rig.begin(epoch=2)
    rig.order(image(1), epoch=2)
    rig.go_on()
    assert rig.hear(MAX_WAITING + 2)[-1].fault is None


def test_letting_go_waits_for_nothing(rig):
    rig.hold(1)
    rig.thread.let_go()
    rig.thread.let_go()
    rig.go_on()
    assert rig.told(1) == [(1, None)]


def test_before_the_first_epoch_an_image_is_answered(rig):
    fresh = Rig()
    fresh.order(image(1))
    assert fresh.told(1) == [(1, ImageFault.CANCELLED)]
    fresh.thread.close()


def test_a_close_ends_the_thread_behind_the_image_that_it_encodes(rig):
    rig.hold(1)
    rig.order(image(2))
    closing = threading.Thread(target=rig.thread.close)
    closing.start()
    rig.go_on()
    closing.join(10)
    assert not rig.thread._thread.is_alive()
    assert rig.model.encoded == [1]
    told = rig.told(1)
    assert told == [(1, None)]
    rig.order(image(3), CancelImage(image_id=3), DropImage(image_id=3))
    assert rig.answers.empty()


def test_a_close_without_a_thread_and_a_second_one_do_nothing():
    thread = EncoderThread()
    thread.close()
    thread.close()


def test_a_master_that_is_lost_ends_the_thread(rig):
    def lose(done):
        raise MasterLost("gone")

    rig.thread.take(ImageOrder(epoch=1, work=image(1)), lose)
    rig.thread._thread.join(10)
    assert not rig.thread._thread.is_alive()


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(
        st.sampled_from(["encode", "cancel", "drop", "leave", "abort"]), min_size=1, max_size=30
    ),
    data=st.data(),
)
def test_in_any_run_of_orders_and_epochs_each_image_is_answered_once_and_in_order(turns, data):
    rig, epoch, asked = Rig(), 1, []
    rig.begin(epoch)
    dropped, image_id = set(), 0
    for turn in turns:
        if turn == "encode":
            image_id += 1
            asked.append((epoch, image_id))
            rig.order(image(image_id), epoch=epoch)
        elif turn in ("cancel", "drop"):
            named = data.draw(st.integers(1, max(1, image_id)))
            kind = CancelImage if turn == "cancel" else DropImage
            if turn == "drop" and named <= image_id and not rig.abort.is_set:
                dropped.add((epoch, named))
            rig.order(kind(image_id=named), epoch=epoch)
        elif turn == "abort":
            rig.abort.set()
        else:
            rig.thread.let_go()
            epoch, image_id = epoch + 1, 0
            rig.begin(epoch)
    answers = rig.hear(len(asked))
    there = {one for one in range(1, 40) if rig.store.find(one) is not None}
    encoded = {one.image_id for one in answers if (one.epoch, one.fault) == (epoch, None)}
    rig.thread.close()
    assert rig.answers.empty()
    assert there == encoded - {number for of, number in dropped if of == epoch}
    assert [(one.epoch, one.image_id) for one in answers] == asked
    assert {one.fault for one in answers} <= {None, ImageFault.CANCELLED}


@pytest.mark.parametrize("ends", ["close", "let_go"])
def test_racing_orders_cancels_and_ends_lose_and_double_no_answer(ends):
    """Four threads that order, and one that ends it meanwhile: all that was taken is answered."""
    for _ in range(20):
        rig = Rig()
        rig.begin()
        barrier = threading.Barrier(5)
        lock, numbers = threading.Lock(), iter(range(1, 1000))

        def order(rig=rig, barrier=barrier, lock=lock, numbers=numbers):
            barrier.wait()
            for _ in range(10):
                with lock:
                    image_id = next(numbers)
                    rig.order(image(image_id, first=1))
                rig.order(CancelImage(image_id=image_id - 1))

        threads = [threading.Thread(target=order) for _ in range(4)]
        for thread in threads:
            thread.start()
        barrier.wait()
        getattr(rig.thread, ends)()
        for thread in threads:
            thread.join(10)
        if ends == "let_go":
            assert [one.image_id for one in rig.hear(40)] == list(range(1, 41))
        rig.thread.close()
        heard = [rig.answers.get_nowait().image_id for _ in range(rig.answers.qsize())]
        assert heard == sorted(set(heard))
