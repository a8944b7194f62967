"""The journal of a master that runs: what clients were told is in it, wherever it is killed."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from lanehost.errors import (
    Cancelled,
    Draining,
    NotJournaled,
    RankGroupLost,
    StepFailed,
)
from lanehost.job import Failed, FinishReason, StopParams
from lanehost.journal.journal import LEAST_COMPACT_BYTES, Journal
from lanehost.journal.records import Drawn, Ended, pack
from lanehost.journal.recovery import recover
from lanehost.journal.room import END_ROOM_BYTES, TOKEN_ROOM_BYTES
from lanehost.journal.segment import PROOF
from tests.support.jobs import make_job
from tests.support.journals import (
    HEADER,
    MODEL,
    SmallDisk,
    Wall,
    accepted,
    finished,
    open_journal,
    tokens_on_disk,
)

NO_STOP = StopParams()


def accept(journal, number=1, **values):
    job = make_job(**({"job_id": f"job-{number}", "max_tokens": 64} | values))
    journal.accept(job, NO_STOP)
    return job


def names(folder):
    return sorted(path.name for path in Path(folder).glob("*.journal"))


def test_what_is_told_is_in_the_file_at_once(tmp_path):
    journal = open_journal(tmp_path)
    accept(journal)
    assert tokens_on_disk(tmp_path) == {"job-1": []}
    accept(journal, 2)
    journal.append([("job-1", [5, 6]), ("job-2", [7])])
    assert tokens_on_disk(tmp_path) == {"job-1": [5, 6], "job-2": [7]}
    journal.end("job-1", finished(2))
    journal.flush()
    streams = recover(tmp_path, MODEL, max_file_bytes=1 << 30).streams
    assert [one.ended for one in streams.kept] == [finished(2)]


def test_no_token_and_no_end_takes_more_than_its_room():
    widest = Drawn(runs=(((1 << 48) - 1, 1 << 40, ((1 << 32) - 1,)),))
    assert len(PROOF.frame(0, pack(widest))) <= TOKEN_ROOM_BYTES
    last = Ended(
        number=(1 << 48) - 1,
        at_s=1e9 / 3,
        finished=finished(1 << 40, reason=FinishReason.STOP, matched="x" * 1000),
    )
    assert len(PROOF.frame(0, pack(last))) <= END_ROOM_BYTES + 1000


def test_a_step_is_one_write_for_all_its_streams(tmp_path):
    class CountingDisk(SmallDisk):
        num_writes = 0

        def write(self, handle, content, at):
            self.num_writes += 1
            return super().write(handle, content, at)

    disk = CountingDisk(1 << 30)
    journal = open_journal(tmp_path, disk=disk)
    for number in range(16):
        accept(journal, number)
    before = disk.num_writes
    journal.append([(f"job-{number}", [number, 1, 2]) for number in range(16)])
    assert disk.num_writes == before + 1
    journal.append([])
    journal.flush()
    assert disk.num_writes == before + 1


actions = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(0, 5)),
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.integers(0, 5)),
        st.just(("begin_anew", 0)),
    ),
    max_size=24,
)


class Told:
    """Runs actions on a journal, and remembers what clients were told after how many bytes."""

    def __init__(self, folder):
        self.folder = folder
        self.journal = open_journal(folder)
        self.tokens: dict[str, list[int]] = {}
        self.over: set[str] = set()
        self.moments = []
        self.note()

    def note(self):
        segment = self.journal._segment
        told = {job: tuple(ids) for job, ids in self.tokens.items() if job not in self.over}
        self.moments.append((segment.path.name, segment.num_bytes, told))

    def run(self, action, what):
        getattr(self, action)(what)
        self.journal.flush()
        self.note()

    def accept(self, number):
        job_id = f"job-{number}"
        if job_id not in self.tokens:
            accept(self.journal, number, prompt_ids=tuple(range(1, number + 2)))
            self.tokens[job_id] = []

    def append(self, numbers):
        grown = [f"job-{n}" for n in sorted(set(numbers)) if f"job-{n}" in self.open]
        self.journal.append([(one, [len(self.tokens[one]) % 251, 7]) for one in grown])
        for one in grown:
            self.tokens[one] += [len(self.tokens[one]) % 251, 7]

    @property
    def open(self):
        return self.tokens.keys() - self.over

    def end(self, number):
        if (job_id := f"job-{number}") in self.open:
            self.journal.end(job_id, finished(len(self.tokens[job_id])))
            self.over.add(job_id)

    def fail(self, number):
        if (job_id := f"job-{number}") in self.open:
            self.journal.end(job_id, Failed(error=StepFailed("for a test")))
            self.over.add(job_id)

    def begin_anew(self, _):
        assert self.journal._compact()


@settings(deadline=None, max_examples=80)
@given(actions, st.data())
def test_cut_at_any_byte_all_that_was_told_by_then_is_recovered_and_nothing_else(
    tmp_path_factory, made, data
):
    folder = tmp_path_factory.mktemp("told")
    told = Told(folder)
    for action in made:
        told.run(*action)
    (name,) = names(folder)
    in_file = [(at, tokens) for one, at, tokens in told.moments if one == name]
    cut = data.draw(st.integers(in_file[0][0], in_file[-1][0]))
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:cut] + bytes(data.draw(st.sampled_from([0, 300]))))

    streams = recover(folder, MODEL, max_file_bytes=1 << 30).streams
    found = {one.accepted.job_id: one.token_ids for one in (*streams.open, *streams.kept)}
    by_then = [tokens for at, tokens in in_file if at <= cut][-1]
    for job_id, token_ids in by_then.items():
        assert tuple(found[job_id][: len(token_ids)]) == token_ids
    for job_id, token_ids in found.items():
        assert told.tokens[job_id][: len(token_ids)] == token_ids


@settings(deadline=None, max_examples=60)
@given(actions, st.integers(0, 1 << 30))
def test_killed_while_it_begins_a_file_nothing_is_lost(tmp_path_factory, made, where):
    folder, whole = tmp_path_factory.mktemp("begun"), tmp_path_factory.mktemp("whole")
    told = Told(folder)
    for action in made:
        told.run(*action)
    (before,) = names(folder)
    shutil.copytree(folder, whole, dirs_exist_ok=True)
    known = tokens_on_disk(folder)
    told.journal._compact()
    (after,) = names(folder)
    content = (folder / after).read_bytes()[: told.journal._segment.num_bytes]
    (whole / after).write_bytes(content[: where % (len(content) + 1)])
    assert before != after
    assert tokens_on_disk(whole) == known == tokens_on_disk(folder)


def test_a_later_master_goes_on_in_a_new_file_and_the_old_one_goes(tmp_path):
    journal = open_journal(tmp_path)
    accept(journal)
    journal.append([("job-1", [5])])
    again = open_journal(tmp_path)
    assert names(tmp_path) == ["000002.journal"]
    again.append([("job-1", [6])])
    accept(again, 2)
    assert tokens_on_disk(tmp_path) == {"job-1": [5, 6], "job-2": []}
    assert {one.accepted.number for one in again.streams.open} == {1, 2}


def test_masters_that_are_killed_are_counted_until_a_token_comes(tmp_path):
    accept(open_journal(tmp_path))
    counts = []
    for _ in range(3):
        journal = open_journal(tmp_path)
        counts.append(journal.find("job-1").num_recoveries)
    assert counts == [1, 2, 3]
    journal.append([("job-1", [5])])
    assert open_journal(tmp_path).find("job-1").num_recoveries == 1


def test_a_master_that_ends_in_order_is_not_counted_and_open_replies_stay(tmp_path):
    for count in range(3):
        journal = open_journal(tmp_path)
        if count == 0:
            accept(journal)
        lost = RankGroupLost("gone", epoch=1, rank=0)
        for error in (Draining("ending"), lost):
            journal.end("job-1", Failed(error=error))
        journal.close()
        assert (tmp_path / names(tmp_path)[0]).stat().st_size < 2000
    found = open_journal(tmp_path).find("job-1")
    assert (found.num_recoveries, found.ended) == (0, None)


def test_a_cancelled_reply_is_not_taken_up_again(tmp_path):
    journal = open_journal(tmp_path)
    accept(journal)
    journal.end("job-1", Failed(error=Cancelled("by the client")))
    assert isinstance(journal.find("job-1").ended, Failed)
    journal.flush()
    assert open_journal(tmp_path).find("job-1") is None


def test_ended_replies_are_known_for_a_while(tmp_path):
    wall = Wall()
    journal = open_journal(tmp_path, wall=wall)
    accept(journal)
    journal.end("job-1", finished(0))
    journal.flush()
    wall.now_s += 599
    again = open_journal(tmp_path, wall=wall)
    assert again.find("job-1").ended == finished(0)
    wall.now_s += 2
    assert again.find("job-1") is None


def test_a_file_is_written_anew_when_enough_of_it_is_over(tmp_path):
    journal = open_journal(tmp_path)
    accept(journal, 0)
    job_bytes = len(pack(accepted(1, prompt_ids=(70_000,) * 50_000)))
    count = LEAST_COMPACT_BYTES // job_bytes + 1
    for number in range(1, count + 1):
        accept(journal, number, prompt_ids=(70_000,) * 50_000)
        journal.end(f"job-{number}", Failed(error=StepFailed("for a test")))
        journal.flush()
    assert names(tmp_path) == ["000002.journal"]
    assert journal._segment.num_bytes < 2000
    assert tokens_on_disk(tmp_path) == {"job-0": []}


def test_what_would_pass_the_bound_is_refused_and_the_others_have_their_room(tmp_path):
    journal = open_journal(tmp_path, max_mib=2)
    count = 4
    for number in range(count):
        accept(journal, number, max_tokens=4000)
    with capture_logs() as logs, pytest.raises(NotJournaled, match="--journal-mib") as refused:
        accept(journal, count, max_tokens=4000)
    assert refused.value.retry_after_s > 0
    assert [line["event"] for line in logs] == ["journal_full"]
    for _ in range(4000):
        journal.append([(f"job-{number}", [250]) for number in range(count)])
    assert not journal.is_failing
    assert all(len(ids) == 4000 for ids in tokens_on_disk(tmp_path).values())
    assert journal.num_bytes < 1 << 20
    journal.end("job-0", finished(4000))
    accept(journal, 9, max_tokens=1000)


def test_for_want_of_room_ended_replies_are_forgotten_first(tmp_path):
    journal = open_journal(tmp_path, max_mib=2)
    for number in range(40):
        accept(journal, number, max_tokens=4000)
        journal.append([(f"job-{number}", [70_000] * 4000)])
        journal.end(f"job-{number}", finished(4000))
    assert 0 < journal.streams.num_kept < 40
    assert journal.num_bytes < 1 << 20
    assert journal.find("job-39") is not None


def test_a_full_disk_refuses_new_requests_and_disturbs_no_other(tmp_path):
    disk = SmallDisk(1 << 20)
    journal = open_journal(tmp_path, disk=disk)
    accept(journal, 1, max_tokens=2000)
    disk.num_left = 0
    with pytest.raises(NotJournaled, match="No space left"):
        accept(journal, 2, max_tokens=5000)
    for _ in range(2000):
        journal.append([("job-1", [250])])
    journal.end("job-1", finished(2000))
    journal.flush()
    assert not journal.is_failing
    assert len(tokens_on_disk(tmp_path)["job-1"]) == 2000
    disk.num_left = 1 << 20
    accept(journal, 2, max_tokens=5000)


def test_when_a_write_fails_replies_go_on_and_all_is_written_again_as_soon_as_that_can_be(tmp_path):
    disk = SmallDisk(1 << 24)
    journal = open_journal(tmp_path, disk=disk)
    accept(journal)
    journal.append([("job-1", [5])])
    disk.is_broken = True
    with capture_logs() as logs:
        journal.append([("job-1", [6])])
        journal.append([("job-1", [7])])
    assert [line["event"] for line in logs] == ["journal_failed"]
    assert journal.is_failing
    assert tokens_on_disk(tmp_path) == {"job-1": [5]}
    with pytest.raises(NotJournaled, match="cannot be written"):
        accept(journal, 2)
    assert journal.find("job-1").token_ids == [5, 6, 7]
    disk.is_broken = False
    accept(journal, 2)
    assert not journal.is_failing
    assert tokens_on_disk(tmp_path) == {"job-1": [5, 6, 7], "job-2": []}


def test_a_file_that_cannot_be_begun_leaves_the_old_one_in_use(tmp_path):
    disk = SmallDisk(1 << 20)
    journal = open_journal(tmp_path, disk=disk)
    accept(journal)
    disk.num_left = 0
    assert not journal._compact()
    journal.append([("job-1", [5])])
    assert names(tmp_path) == ["000001.journal"]
    assert tokens_on_disk(tmp_path) == {"job-1": [5]}


def test_a_reply_that_is_given_up_is_logged_and_forgotten(tmp_path):
    accept(open_journal(tmp_path), label="mine")
    journal = open_journal(tmp_path)
    with capture_logs() as logs:
        journal.give_up("job-1", "for a test")
    journal.flush()
    assert (logs[0]["event"], logs[0]["label"]) == ("stream_given_up", "mine")
    assert open_journal(tmp_path).find("job-1") is None


def test_the_room_of_all_that_has_ended_is_given_back(tmp_path):
    journal = open_journal(tmp_path)
    for number in range(3):
        accept(journal, number)
        journal.append([(f"job-{number}", [5] * number)])
    journal.end("job-0", finished(0))
    journal.end("job-1", Failed(error=StepFailed("for a test")))
    assert journal._room_bytes == 62 * 64 + 512
    again = open_journal(tmp_path)
    again.give_up("job-2", "for a test")
    assert isinstance(again, Journal)
    assert HEADER.model == MODEL
