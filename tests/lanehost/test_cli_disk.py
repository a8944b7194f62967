import click
import pytest

from lanehost.cli import main
from lanehost.cli_disk import Size
from lanehost.cli_serve import start
from lanehost.disk_cache.policy import DEFAULT_RECENT, DiskMode, ModeKind
from lanehost.settings import DEFAULT_DISK_BUDGET, DiskSettings


def settings_of(model, *args):
    asked = []
    options = main.commands["serve"].make_context("serve", ["--model", str(model), *args]).params
    start(options, run=lambda settings: asked.append(settings) or 0)
    return asked[0]


def test_without_a_folder_there_is_no_disk_tier(tmp_path):
    settings = settings_of(tmp_path)
    assert settings.disk is None
    assert settings.ranks.disk_folder is None


def test_a_folder_alone_takes_the_defaults(tmp_path):
    folder = tmp_path / "cache"
    settings = settings_of(tmp_path, "--disk-cache", str(folder))
    assert settings.disk == DiskSettings(
        folder=folder,
        mode=DiskMode(ModeKind.AUTO, DEFAULT_RECENT),
        budget_bytes=DEFAULT_DISK_BUDGET,
    )
    assert settings.ranks.disk_folder == folder


def test_mode_and_budget_are_what_was_said(tmp_path):
    args = "--disk-cache a --disk-cache-mode 512 --disk-cache-budget 2GiB --cache-self-check 9"
    disk = settings_of(tmp_path, *args.split()).disk
    assert (disk.mode, disk.budget_bytes) == (DiskMode(ModeKind.EVERY, 512), 2 << 30)
    assert disk.self_check == 9


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--disk-cache-mode full", "--disk-cache-mode needs --disk-cache DIR"),
        ("--disk-cache-budget 1GiB", "--disk-cache-budget needs --disk-cache DIR"),
        ("--cache-self-check 2", "--cache-self-check needs --disk-cache DIR"),
        ("--disk-cache a --cache-self-check -1", "--cache-self-check is -1, allowed is 0"),
        ("--disk-cache a --disk-cache-mode all", "--disk-cache-mode is 'all', allowed is off"),
        ("--disk-cache a --disk-cache-budget 1KiB", "--disk-cache-budget is 1024, allowed is"),
        ("--disk-cache a --prompt-cache off", "contradict each other"),
        ("--disk-cache a --record b", "contradict each other"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(tmp_path, args, says):
    with pytest.raises(click.UsageError, match=says):
        settings_of(tmp_path, *args.split())


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("7", 7), ("7b", 7), ("3KiB", 3072), ("3kb", 3000), ("2MiB", 2 << 20), ("1TB", 10**12)],
)
def test_sizes_are_read(text, num_bytes):
    assert Size().convert(text, None, None) == num_bytes
    assert Size().convert(num_bytes, None, None) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "1.5GiB", "-1", "4 GiB", "1PiB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(click.BadParameter, match="should be a size, like 4GiB"):
        Size().convert(text, None, None)
