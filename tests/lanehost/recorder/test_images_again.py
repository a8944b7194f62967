"""Trails with images: recorded, checked by their own words, run again whole and one by one."""

from dataclasses import replace

import pytest

from lanehost.engine.backend import Epochs
from lanehost.rank_group.image_interface import ImageReason
from lanehost.recorder.alone import find_request, replay_alone
from lanehost.recorder.check import check_trail
from lanehost.recorder.images_again import ReplayedImages, prepared_again
from lanehost.recorder.records import (
    Closed,
    ImageDropped,
    ImageEncoded,
    JobArrived,
    RecordedImage,
    StepSubmitted,
)
from lanehost.recorder.replay import replay_on
from lanehost.recorder.trail import CannotReplay, DamagedTrail, Trail
from ranks.plan import Draw
from tests.support.fake_epochs import FakeEpochs
from tests.support.fake_ranks import FakeRanks
from tests.support.fake_target import solo_reply
from tests.support.images import image_facts, image_job, prepared
from tests.support.jobs import make_job
from tests.support.trails import first_file, notes_of, rewrite, run_recorded

FACTS = image_facts(num_lanes=3, num_blocks=24, vocab_size=7, image_cache_tokens=12)
MS = 1_000_000


def mixed_jobs():
    jobs = [make_job((1, 2, 3, n % 3), max_tokens=8, job_id=f"text-{n}") for n in range(4)]
    for n in range(6):
        parts = ((2, 3), 1 + n % 3, (4, n % 4), 1 + n % 2, (5,) * n)
        draw = Draw(temperature=0.7 * (n % 2), seed=n)
        jobs.append(image_job(*parts, max_tokens=3 + n, draw=draw, job_id=f"image-{n}"))
    return jobs


async def record(folder, *, keeps_images=True, change=lambda rig: None, **values):
    def slow(rig):
        rig.ranks.takes_ns = lambda plan: 20 * MS
        change(rig)

    return await run_recorded(
        folder, jobs=mixed_jobs(), facts=FACTS, change=slow, keeps_images=keeps_images, **values
    )


async def replayed(folder, ranks=None):
    trail, ranks = Trail(folder), ranks or FakeRanks(FACTS)
    epochs = Epochs(first=ranks, later=FakeEpochs(ranks, num_epochs=99))
    return await replay_on(epochs, trail.header, trail, on_step=lambda _: None)


def checked(folder):
    trail = Trail(folder)
    return check_trail(trail.header, trail, on_step=lambda _: None)


async def test_a_trail_with_images_is_equal_to_itself(tmp_path):
    replies = await record(tmp_path)
    assert [one for n, one in enumerate(replies) if n % 5 != 4] == [
        solo_reply(job, 7) for n, job in enumerate(mixed_jobs()) if n % 5 != 4
    ]
    slices = [
        note.plan.staged
        for note in notes_of(tmp_path)
        if isinstance(note, StepSubmitted) and note.plan.staged
    ]
    assert any(one.first_layer for one in slices)
    again = await replayed(tmp_path)
    assert (again.difference, type(again.end)) == (None, Closed)
    assert checked(tmp_path) == again


def failing(failed, *, in_the_middle):
    """Lose the ranks once, and have two slices fail: the first of their passes, or later ones."""

    def change(rig):
        rig.epochs.num_epochs = 3
        rig.ranks.lost_at_step = 9

        def fails(plan):
            staged = plan.staged
            if staged is None or bool(staged.first_layer) is not in_the_middle or len(failed) > 1:
                return False
            failed.append(plan)
            return True

        rig.ranks.fails = fails

    return change


async def test_a_trail_with_lost_ranks_and_failed_passes_is_equal_to_itself(tmp_path):
    failed = []
    await record(tmp_path, change=failing(failed, in_the_middle=False))
    assert failed
    assert checked(tmp_path).difference is None
    again = await replayed(tmp_path)
    assert again.difference is None
    assert again.num_epochs > 1


async def test_a_pass_dropped_in_its_middle_is_checked_and_refused_by_ranks_in_words(tmp_path):
    failed = []
    await record(tmp_path, change=failing(failed, in_the_middle=True))
    assert failed
    assert checked(tmp_path).difference is None
    with pytest.raises(CannotReplay, match="in the middle of a staged pass"):
        await replayed(tmp_path)


async def test_every_request_with_images_alone_equals_itself_among_others(tmp_path):
    await record(tmp_path)
    trail = Trail(tmp_path)
    for number in range(6):
        job = find_request(trail.header, trail, f"image-{number}")
        alone = await replay_alone(FakeRanks(FACTS), trail.header, job, on_step=lambda _: None)
        assert alone.difference is None
        assert alone.num_tokens or not job.drawn


async def test_digests_alone_are_checked_and_refused_by_ranks_in_words(tmp_path):
    await record(tmp_path, keeps_images=False)
    assert all(
        one.pixels == b""
        for note in notes_of(tmp_path)
        if isinstance(note, JobArrived)
        for one in note.images
    )
    assert checked(tmp_path).difference is None
    with pytest.raises(CannotReplay, match="--record-images bytes"):
        await replayed(tmp_path)


async def test_without_prompts_no_pixel_and_no_digest_of_an_image_is_in_the_file(tmp_path):
    await record(tmp_path, keeps_prompts=False, keeps_images=False)
    content = first_file(tmp_path).read_bytes()
    for number in (1, 2, 3):
        assert prepared(number).digest not in content
        assert prepared(number).pixels not in content
    assert checked(tmp_path).difference is None


async def test_a_pass_that_names_another_image_is_seen(tmp_path):
    await record(tmp_path)
    changed = []

    def change(note):
        if isinstance(note, ImageEncoded) and not changed:
            changed.append(note)
            return replace(note, digest=bytes(32))
        return note

    rewrite(tmp_path, change)
    difference = checked(tmp_path).difference
    assert difference.what == "the images of a staged pass"
    assert prepared(1).digest.hex()[:8] in difference.got


async def test_an_image_that_ranks_cannot_encode_ends_the_replay_in_words(tmp_path):
    await record(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.images.fault = lambda _: ImageReason.OUT_OF_MEMORY
    with pytest.raises(CannotReplay, match="out_of_memory"):
        await replayed(tmp_path, ranks)


async def test_an_image_of_nobody_makes_no_sense():
    note = ImageEncoded(at_ns=1, epoch=1, image_id=1, digest=bytes(32))
    with pytest.raises(DamagedTrail):
        await ReplayedImages().take(FakeRanks(FACTS), note)


async def test_what_was_not_kept_is_not_dropped():
    ranks = FakeRanks(FACTS)
    await ReplayedImages().take(ranks, ImageDropped(at_ns=1, epoch=1, image_id=1))
    assert ranks.images.log == []


def test_an_image_is_prepared_again_as_it_was():
    image = prepared(3)
    kept = RecordedImage(
        start=0,
        num_tokens=4,
        digest=image.digest,
        width=image.width,
        height=image.height,
        pixels=image.pixels,
    )
    assert prepared_again(kept) == image
