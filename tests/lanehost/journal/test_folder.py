"""The folder of a journal: one server, one owner, one model."""

import stat
from dataclasses import replace

import pytest

from lanehost.errors import StartupFailed
from lanehost.job import StopParams
from lanehost.journal.journal import journaling
from lanehost.settings import JournalSettings
from tests.support.jobs import make_job
from tests.support.journals import MODEL, SmallDisk, Wall


def opened(folder, model=MODEL, disk=None):
    wall = Wall()
    return journaling(JournalSettings(folder=folder), "0", model, wall_clock=wall, disk=disk)


def test_a_folder_has_one_server_and_is_its_owners_alone(tmp_path):
    folder = tmp_path / "of" / "mine"
    with opened(folder) as journal:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(StartupFailed, match="in use by another server"), opened(folder):
            pass
        journal.accept(make_job(job_id="job-1", max_tokens=64), StopParams())
    with opened(folder) as journal:
        assert journal.find("job-1") is not None
    with (
        pytest.raises(StartupFailed, match="another model"),
        opened(folder, replace(MODEL, dtype="int8")),
    ):
        pass


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartupFailed, match="cannot be used"), opened(tmp_path / "file" / "in"):
        pass
    disk = SmallDisk(0)
    with (
        pytest.raises(StartupFailed, match=r"cannot be written: .*No space"),
        opened(tmp_path / "full", disk=disk),
    ):
        pass
    assert list((tmp_path / "full").glob("*.journal")) == []
