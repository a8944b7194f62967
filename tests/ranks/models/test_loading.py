"""Loading and digesting side by side."""

import threading
import time

import pytest
from gguf.constants import GGMLQuantizationType as Kind

from ranks.errors import BadCheckpoint
from ranks.models.loading import load_and_digest
from ranks.models.registry import open_checkpoint
from ranks.weights.digests import digest_files
from tests.support.tiny_checkpoints import write_gguf


@pytest.fixture
def checkpoint(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", Kind.Q8_0)
    return open_checkpoint(tmp_path / "tiny.gguf")


def test_the_model_and_the_digest_of_its_files_come_back(checkpoint):
    loaded = load_and_digest(checkpoint, lambda tell: "the model", lambda done, total: None)
    assert loaded.model == "the model"
    assert loaded.weights_digest == digest_files(list(checkpoint.weight_files))


def test_progress_counts_both_and_rises_to_its_total(checkpoint):
    told = []

    def load(tell):
        for done in (1, 5, 10):
            tell(done, 10)

    load_and_digest(checkpoint, load, lambda *counts: told.append(counts))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {2 * checkpoint.num_bytes()}
    assert told[-1][0] == told[-1][1]


def test_the_two_run_at_the_same_time(checkpoint):
    met = threading.Barrier(2, timeout=5)
    loading = threading.current_thread()

    def on_progress(_done, _total):
        if threading.current_thread() is not loading:
            met.wait()

    load_and_digest(checkpoint, lambda tell: met.wait(), on_progress)


def test_a_model_that_cannot_be_loaded_ends_the_digest_too(checkpoint, tmp_path):
    with (tmp_path / "tiny.gguf").open("ab") as file:
        file.truncate(1 << 34)  # to digest 16 GiB of nothing takes many seconds

    def load(_tell):
        raise BadCheckpoint("no such tensor")

    begun_s = time.process_time()
    with pytest.raises(BadCheckpoint, match="no such tensor"):
        load_and_digest(checkpoint, load, lambda done, total: None)
    assert time.process_time() - begun_s < 2


def test_a_file_that_cannot_be_digested_fails_the_load(checkpoint, tmp_path):
    (tmp_path / "tiny.gguf").rename(tmp_path / "gone.gguf")
    size = (tmp_path / "gone.gguf").stat().st_size
    assert size
    with pytest.raises(BadCheckpoint, match=r"tiny.gguf: cannot be read"):
        load_and_digest(checkpoint, lambda tell: "the model", lambda done, total: None)
