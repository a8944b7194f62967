"""A trail of several epochs: written, checked, replayed, and refused where it makes no sense."""

import pytest

from lanehost.engine.backend import Epochs
from lanehost.recorder.alone import find_request
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import EpochBegan, GroupWasLost, StepSubmitted
from lanehost.recorder.replay import replay_on
from lanehost.recorder.trail import DamagedTrail, Trail
from tests.support.fake_engine import EngineRig
from tests.support.fake_epochs import FakeEpochs
from tests.support.fake_ranks import FakeRanks, LostWhen
from tests.support.trails import FACTS, header, mixed_jobs, notes_of, run_jobs, run_recorded


def lose_often(rig):
    rig.epochs.num_epochs = 99
    rig.ranks.loses = lambda plan: LostWhen.BEHIND if plan.step_id == 9 else None


async def recorded(folder, **options):
    plain = await run_jobs(EngineRig(FACTS, max_drafts=4), mixed_jobs())
    assert await run_recorded(folder, change=lose_often, **options) == plain
    notes = notes_of(folder)
    assert sum(isinstance(note, EpochBegan) for note in notes) > 2
    return notes


@pytest.mark.parametrize("keeps_prompts", [True, False])
async def test_a_trail_of_several_epochs_is_equal(tmp_path, keeps_prompts):
    notes = await recorded(tmp_path, keeps_prompts=keeps_prompts)
    trail = Trail(tmp_path)
    checked = check_trail(trail.header, trail, on_step=lambda _: None)
    num_epochs = 1 + sum(isinstance(note, EpochBegan) for note in notes)
    assert (checked.difference, checked.num_epochs) == (None, num_epochs)


async def test_it_is_replayed_epoch_by_epoch_on_ranks_that_form_anew(tmp_path):
    await recorded(tmp_path)
    trail = Trail(tmp_path)
    ranks = FakeRanks(FACTS)
    epochs = FakeEpochs(ranks, num_epochs=99)
    pair = Epochs(first=ranks, later=epochs)
    replayed = await replay_on(pair, trail.header, trail, on_step=lambda _: None)
    assert replayed == check_trail(trail.header, trail, on_step=lambda _: None)
    assert len(epochs.all) == replayed.num_epochs


async def test_one_request_of_it_is_found_with_all_its_tokens(tmp_path):
    await recorded(tmp_path)
    trail = Trail(tmp_path)
    jobs = mixed_jobs()
    job = max((job for n, job in enumerate(jobs) if n % 5 != 4), key=lambda job: job.max_tokens)
    assert len(find_request(trail.header, trail, job.job_id).drawn) >= job.max_tokens


async def test_what_makes_no_sense_is_refused(tmp_path):
    notes = await recorded(tmp_path)
    lost = next(n for n, note in enumerate(notes) if isinstance(note, GroupWasLost))
    began = next(n for n, note in enumerate(notes) if isinstance(note, EpochBegan))
    step = next(n for n, note in enumerate(notes) if isinstance(note, StepSubmitted))
    wrong = {
        "epoch 2 begins, and epoch 1 was not lost": [*notes[:lost], *notes[lost + 1 :]],
        "comes after the loss of epoch 1": [*notes[:began], notes[step], *notes[began:]],
        "epoch 2 begins behind epoch 2": [
            *notes[: began + 1],
            notes[lost],
            notes[began],
            *notes[began + 1 :],
        ],
    }
    for message, changed in wrong.items():
        with pytest.raises(DamagedTrail, match=message):
            check_trail(header(facts=FACTS), changed, on_step=lambda _: None)
