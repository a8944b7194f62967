from dataclasses import replace

import pytest

from lanehost.disk_cache.folder import own_folder
from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifests import manifest_path, write_manifest
from lanehost.disk_cache.policy import DiskMode, ModeKind
from lanehost.engine.disk_build import build_disk, model_identity
from lanehost.engine.inbox import FileNews, Inbox
from lanehost.settings import DiskSettings
from tests.support.disk_entries import manifest_of
from tests.support.fake_ranks import fake_facts

FACTS = fake_facts()
IDENTITY = model_identity(FACTS, text_digest="t", build="1")


@pytest.mark.parametrize(
    "name", ["weights_digest", "config_digest", "dtype", "device", "weights", "kv_layout"]
)
def test_what_the_bits_depend_on_is_in_the_layout(name):
    other = model_identity(replace(FACTS, **{name: "other"}), text_digest="t", build="1")
    assert other.layout != IDENTITY.layout


def test_world_size_block_size_tokenizer_and_build_are_in_it_too():
    others = [
        model_identity(replace(FACTS, world_size=2), text_digest="t", build="1"),
        model_identity(replace(FACTS, block_size=8), text_digest="t", build="1"),
        model_identity(FACTS, text_digest="u", build="1"),
        model_identity(FACTS, text_digest="t", build="2"),
    ]
    assert len({one.layout for one in (*others, IDENTITY)}) == 5


def test_an_epoch_its_lanes_and_how_ranks_add_are_not():
    later = replace(FACTS, epoch=7, num_lanes=9, num_blocks=99, collective="shm")
    assert model_identity(later, text_digest="t", build="1").layout == IDENTITY.layout


async def test_what_the_folder_holds_is_found_and_outcomes_go_to_the_inbox(tmp_path):
    mine = manifest_of(range(8), model=IDENTITY)
    write_manifest(tmp_path, mine)
    manifest_path(tmp_path, mine.header.name).with_name("0.manifest").write_bytes(b"")
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "file").write_bytes(b"12345")
    inbox = Inbox()
    settings = DiskSettings(folder=tmp_path, mode=DiskMode(ModeKind.FULL))
    with own_folder(tmp_path) as folder:
        disk = build_disk(folder, settings, FACTS, IDENTITY, inbox)
        entry = disk.tier.find("s", tuple(range(9)))
        assert entry.manifest == mine
        assert disk.tier.index.aside_bytes == 5
        assert disk.tier.counters.misses == {FileReason.TORN.value: 1}
        disk.tier.note_use(entry)
        disk.close()
        (news,) = await inbox.take_all()
        assert isinstance(news, FileNews)
        disk.hear(news)
        assert disk.is_quiet
