"""`lanehost follow` and `lanehost launch`: arguments and environments become settings."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lanehost.cli import main
from lanehost.cli_launch import place, serve_part, start_following
from lanehost.cli_serve import start
from lanehost.errors import StartupFailed
from lanehost.settings import FollowSettings, RankPortSettings

LWS = {"LWS_LEADER_ADDRESS": "10.0.0.1", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}


class FakeRun:
    """Takes the place of what runs: what it was asked to do."""

    def __init__(self, error=None):
        self.asked = []
        self._error = error

    def __call__(self, settings):
        self.asked.append(settings)
        if self._error is not None:
            raise self._error
        return 3


def params(command, *args):
    return main.commands[command].make_context(command, list(args)).params


def follow(run, *args):
    return start_following(params("follow", *args), run=run)


def test_the_options_of_follow_become_settings(tmp_path):
    run = FakeRun()
    args = "--tp 2 --rank 1 --master 10.0.0.1:7 --rank-tls tls --rank-interface eth1 --log-json"
    assert follow(run, "--model", str(tmp_path), *args.split(), "--master-timeout", "9") == 3
    master = RankPortSettings(host="10.0.0.1", port=7, tls=Path("tls"), interface="eth1")
    assert run.asked == [
        FollowSettings(
            rank=1, tp=2, master=master, model_path=tmp_path, master_timeout_s=9, log_json=True
        )
    ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--tp 2 --rank 1", "--master is missing"),
        ("--tp 2 --master a:1", "--rank is missing"),
        ("--tp 2 --rank 0 --master a:1", "--rank is 0, allowed is 1 to 1"),
        ("--tp 2 --rank 1 --master a:0", "--master's port is 0, allowed is 1 to 65535"),
    ],
)
def test_what_follow_cannot_do_is_refused_by_name(tmp_path, args, says):
    with pytest.raises(click.UsageError, match=says):
        follow(FakeRun(), "--model", str(tmp_path), *args.split())


def test_a_refusal_by_the_master_is_one_line_and_code_1(tmp_path, capsys):
    run = FakeRun(StartupFailed("rank 1 is taken"))
    args = "--tp 2 --rank 1 --master 10.0.0.1:7 --insecure-rank-port"
    assert follow(run, "--model", str(tmp_path), *args.split()) == 1
    assert capsys.readouterr().err == "lanehost: cannot follow: rank 1 is taken\n"


def test_every_option_of_follow_is_used(tmp_path):
    used = set()

    class Options(dict):
        def __getitem__(self, name):
            used.add(name)
            return super().__getitem__(name)

    options = params(
        "follow", "--model", str(tmp_path), *["--tp", "2", "--rank", "1", "--master", "a:1"]
    )
    start_following(Options(options), run=FakeRun())
    assert used == options.keys()


def placed(environment, *args):
    options = params("launch", *args)
    return place(options | {"tp": None if "--tp" not in args else options["tp"]}, environment)


def test_one_command_line_serves_on_rank_0_and_follows_elsewhere(tmp_path):
    args = ("--model", str(tmp_path), "--insecure-rank-port", "--lanes", "3")
    run = FakeRun()
    start(serve_part(placed(LWS | {"LWS_WORKER_INDEX": "0"}, *args)), run=run)
    start_following(placed(LWS, *args), run=run)
    served, followed = run.asked
    port = RankPortSettings(host="10.0.0.1", port=50050, is_open=True, ranks_here=1)
    assert (served.ranks.tp, served.ranks.num_lanes, served.ranks.rank_port) == (2, 3, port)
    assert followed == FollowSettings(rank=1, tp=2, master=port, model_path=tmp_path)


def test_a_launcher_of_one_process_starts_a_server_of_one_rank(tmp_path):
    run = FakeRun()
    alone = LWS | {"LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"}
    start(serve_part(placed(alone, "--model", str(tmp_path))), run=run)
    assert (run.asked[0].ranks.tp, run.asked[0].ranks.rank_port) == (1, None)


def test_an_option_that_contradicts_the_environment_is_refused_with_both_values(tmp_path):
    with pytest.raises(click.UsageError, match="--tp is 1, LWS_GROUP_SIZE is 2"):
        placed(LWS, "--model", str(tmp_path), "--tp", "1")


def test_without_a_launcher_the_command_says_what_to_use_instead():
    result = CliRunner().invoke(main, ["launch"], env=dict.fromkeys(("RANK", "SLURM_PROCID")))
    assert result.exit_code == 2
    assert "no launcher is in the environment" in result.output


def test_launch_takes_every_option_of_serve_and_of_follow():
    def options(name):
        return {option.name for option in main.commands[name].params}

    assert options("launch") == options("serve") | options("follow") | {"launcher"}
