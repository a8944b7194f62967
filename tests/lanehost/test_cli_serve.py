"""What `serve` makes of the options for several hosts; the others are in test_cli.py."""

from pathlib import Path

import click
import pytest

from lanehost.cli import main
from lanehost.cli_serve import find_model, start
from lanehost.settings import RankPortSettings


def settings_of(model, *args):
    asked = []
    options = main.commands["serve"].make_context("serve", ["--model", str(model), *args]).params
    start(options, run=lambda settings: asked.append(settings) or 0)
    return asked[0].ranks


def test_rank_0_takes_in_the_ranks_of_other_hosts(tmp_path):
    args = "--tp 2 --rank 0 --master 10.0.0.1:0 --rank-tls tls --rank-interface eth1"
    ranks = settings_of(tmp_path, *args.split())
    assert ranks.rank_port == RankPortSettings(
        host="10.0.0.1", port=0, tls=Path("tls"), interface="eth1"
    )
    assert list(ranks.followed_ranks) == [1]


def test_without_a_master_all_ranks_are_of_this_host(tmp_path):
    ranks = settings_of(tmp_path, "--tp", "2")
    assert ranks.rank_port is None
    assert list(ranks.followed_ranks) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--tp 2 --rank 0", "--rank needs --master HOST:PORT"),
        ("--tp 2 --rank-tls tls", "--rank-tls needs --master"),
        ("--tp 2 --insecure-rank-port", "--insecure-rank-port needs --master"),
        ("--tp 2 --rank-interface eth1", "--rank-interface needs --master"),
        ("--tp 2 --master a:1", "--rank is left out, with --master"),
        ("--tp 2 --rank 1 --master a:1", "--rank is 1, with --master"),
        ("--rank 0 --master a:1", "--tp with --master is 1, allowed is 2 to 2"),
    ],
)
def test_half_of_what_several_hosts_need_is_refused_by_name(tmp_path, args, says):
    with pytest.raises(click.UsageError, match=says):
        settings_of(tmp_path, *args.split())


def test_a_model_that_is_not_there_is_named():
    with pytest.raises(click.BadParameter, match="'no-such' is no file and no folder"):
        find_model("no-such")
