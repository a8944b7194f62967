"""Images in the disk tier: what is on disk of a prompt names its images, over a restart too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.disk_cache.identity import prefix_keys, tokens_digest
from lanehost.disk_cache.index import DiskIndex
from lanehost.disk_cache.manifest import Manifest, pack_manifest, read_manifest
from lanehost.disk_cache.policy import Computed, DiskMode, DiskPolicy, ModeKind, parse_mode
from lanehost.image_ids import ends_inside
from tests.support.disk_entries import MODEL, SIZE, manifest_of
from tests.support.images import image_job

LAYOUT, OWNER = "1a" * 32, "2b" * 32


def ids_of(*parts, num_tokens=4):
    return image_job(*parts, num_tokens=num_tokens).identity_ids


def index_of(*manifests):
    index = DiskIndex(MODEL.layout, block_size=SIZE, budget_bytes=1000)
    for manifest in manifests:
        index.add(manifest)
    return index


def test_two_images_of_one_size_with_the_same_text_have_different_keys_and_digests():
    cat, dog = (ids_of((7, 8), number, (9, 9)) for number in (1, 2))
    keys = [prefix_keys(LAYOUT, OWNER, ids, block_size=SIZE) for ids in (cat, dog)]
    assert set(keys[0]).isdisjoint(keys[1])
    assert tokens_digest(cat) != tokens_digest(dog)


def test_token_ids_have_the_keys_and_digests_that_they_always_had():
    """Files of earlier servers stay good."""
    (key,) = prefix_keys(LAYOUT, OWNER, (1, 2, 3, 4), block_size=SIZE)
    assert key == "17676bb6fcf70249c3b43817d5731577e5b2346626b4dbc6d777f36d12ab0985"
    assert tokens_digest((1, 2, 3, 4)) == (
        "fa8da776a97684a4830e4a1223594659b8b837b0d70f395bd8aaf6c35df06e08"
    )


@given(st.lists(st.one_of(st.integers(1, 3), st.tuples(st.integers(0, 9))), min_size=4, max_size=8))
def test_a_manifest_with_images_reads_as_it_was_written(parts):
    ids = ids_of(*parts)
    manifest = manifest_of(ids[: len(ids) // SIZE * SIZE])
    assert read_manifest(pack_manifest(manifest)) == manifest


def test_an_image_is_found_after_a_restart_and_not_in_the_place_of_another():
    cat, dog = (ids_of((7, 8), number, (9, 9, 9)) for number in (1, 2))
    manifest = read_manifest(pack_manifest(manifest_of(cat[:8])))
    assert isinstance(manifest, Manifest)
    index = index_of(manifest)
    assert index.find("s", cat).num_tokens == 8
    assert index.find("s", dog) is None


def test_a_hit_ends_inside_no_image():
    ids = ids_of((7, 8), 1, (9,), num_tokens=9)
    index = index_of(manifest_of(ids[:8]), manifest_of(ids[:4]))
    assert index.find("s", ids) is None


@pytest.mark.parametrize("mode", ["full", "4", "auto"])
@given(
    parts=st.lists(
        st.one_of(st.integers(1, 2), st.tuples(st.integers(0, 1))), min_size=4, max_size=8
    ),
    num_prompt=st.integers(1, 40),
)
def test_nothing_is_saved_that_ends_inside_an_image(mode, parts, num_prompt):
    ids = ids_of(*parts, num_tokens=7)
    policy = DiskPolicy(parse_mode(mode), block_size=SIZE)
    for _ in range(2):
        computed = Computed(scope="s", token_ids=ids, num_prompt=num_prompt, marks=())
        assert not any(ends_inside(ids, length) for length in policy.lengths(computed))


def test_what_is_cut_back_to_a_whole_image_is_saved_all_the_same():
    ids = ids_of(tuple(range(16)), 1, num_tokens=8)
    policy = DiskPolicy(DiskMode(ModeKind.FULL), block_size=SIZE)
    computed = Computed(scope="s", token_ids=ids, num_prompt=20, marks=())
    assert policy.lengths(computed) == (24, 16)
