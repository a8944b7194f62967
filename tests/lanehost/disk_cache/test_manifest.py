import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.disk_cache import identity, manifest
from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifest import Manifest, pack_manifest, read_manifest
from tests.support.disk_entries import manifest_of

WHOLE = replace(manifest_of(range(8), hits=3, used=7), marks=(4,))
PACKED = pack_manifest(WHOLE)


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.integers(0, (1 << 32) - 1), min_size=4 * n, max_size=4 * n)
    ),
    st.text(),
    st.integers(0, 1 << 40),
)
def test_what_is_packed_reads_as_an_equal_manifest(token_ids, scope, hits):
    whole = manifest_of(token_ids, scope=scope, hits=hits)
    assert read_manifest(pack_manifest(whole)) == whole


def test_a_torn_manifest_is_never_taken():
    for end in range(len(PACKED)):
        assert isinstance(read_manifest(PACKED[:end]), FileReason)
    assert read_manifest(PACKED + b"\1") is FileReason.TORN


def test_a_flipped_bit_is_never_taken():
    for at in range(len(PACKED)):
        changed = bytearray(PACKED)
        changed[at] ^= 1 << (at % 8)
        assert isinstance(read_manifest(bytes(changed)), FileReason)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(content):
    assert isinstance(read_manifest(content), FileReason)


@pytest.mark.parametrize(("version", "reason"), [(0, FileReason.OLDER), (2, FileReason.NEWER)])
def test_another_version_says_which(monkeypatch, version, reason):
    monkeypatch.setattr(manifest, "IDENTITY_VERSION", version)
    other = pack_manifest(WHOLE)
    monkeypatch.undo()
    assert identity.IDENTITY_VERSION == manifest.IDENTITY_VERSION == 1
    assert read_manifest(other) is reason


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": (*range(7), 9)},
        {"token_ids": tuple(range(7))},
        {"token_ids": ()},
        {"owner": "0" * 64},
        {"header": replace(WHOLE.header, key="0" * 64)},
        {"header": replace(WHOLE.header, tokens_digest="0" * 64)},
        {"header": replace(WHOLE.header, layout="0" * 64)},
        {"block_size": 8},
        {"block_size": 3},
    ],
)
def test_one_that_does_not_agree_with_itself_is_none(change):
    assert read_manifest(pack_manifest(replace(WHOLE, **change))) is FileReason.TOKENS


def test_more_tokens_than_any_context_are_foreign_and_never_laid_out():
    content = pack_manifest(replace(WHOLE, token_ids=(1,) * (manifest.MAX_TOKENS + 1)))
    tracemalloc.start()
    try:
        assert read_manifest(content) is FileReason.FOREIGN
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A pointer for each where it is unpacked and one where it is checked, and the bytes.
    assert peak < 20 * len(content)


def test_the_longest_manifest_fits_its_bound():
    ids = (manifest.MAX_TOKENS - 1,) * manifest.MAX_TOKENS
    assert len(pack_manifest(replace(WHOLE, token_ids=ids))) < manifest.MAX_MANIFEST_BYTES


@pytest.mark.parametrize(
    "change", [{"hits": -1}, {"owner": "s"}, {"rank_bytes": ()}, {"block_size": 0}]
)
def test_what_is_out_of_range_is_foreign(change):
    assert read_manifest(pack_manifest(replace(WHOLE, **change))) is FileReason.FOREIGN


def test_its_bytes_are_those_of_all_ranks():
    whole: Manifest = replace(WHOLE, rank_bytes=(3, 4))
    assert whole.num_bytes == 7
