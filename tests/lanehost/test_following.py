"""`lanehost follow`: how long it waits for a master, and what it exits with."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from lanehost.errors import StartupFailed
from lanehost.following import FollowExit, follow, run_follower
from lanehost.rank_group.agent import Dismissed, Lost, Refused
from lanehost.settings import FollowSettings, RankPortSettings


def settings(**changes):
    master = RankPortSettings(host="127.0.0.1", port=1)
    usual = {"rank": 1, "tp": 2, "master": master, "model_path": Path("m")}
    return FollowSettings(**(usual | changes))


class ScriptedAgent:
    """Follows as the script says, and finds no master behind its end."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    async def follow(self):
        return self.outcomes.pop(0) if self.outcomes else Lost("nobody", has_joined=False)


@pytest.mark.parametrize(("is_failure", "code"), [(False, 0), (True, 3)])
async def test_a_master_that_ends_in_order_is_no_failure_and_one_that_gave_up_is(is_failure, code):
    agent = ScriptedAgent(Dismissed("enough", is_failure=is_failure))
    assert await follow(settings(), agent) == code


async def test_a_refusal_is_final_and_says_by_whom_and_why():
    agent = ScriptedAgent(Refused("rank 1 is taken"))
    with pytest.raises(
        StartupFailed, match=r"the master at 127\.0\.0\.1:1 refuses .*rank 1 is taken"
    ):
        await follow(settings(), agent)


async def test_a_master_that_is_gone_is_dialled_again_until_the_limit_and_no_longer():
    with capture_logs() as logs:
        agent = ScriptedAgent(Lost("reset", has_joined=True), Lost("nobody", has_joined=False))
        assert await follow(settings(master_timeout_s=1), agent) is FollowExit.MASTER_LOST
    events = [one["event"] for one in logs]
    assert events.count("follow_master_lost") == 1
    assert events.count("master_awaited") == 1
    assert events[-1] == "follow_given_up"
    assert agent.outcomes == []


async def test_a_master_that_is_found_again_ends_the_wait():
    lost = [Lost("nobody", has_joined=False), Lost("reset", has_joined=True)]
    agent = ScriptedAgent(*lost, Dismissed("enough", is_failure=False))
    assert await follow(settings(master_timeout_s=60), agent) is FollowExit.OK


def test_what_cannot_be_dialled_safely_is_refused_at_once():
    master = RankPortSettings(host="192.0.2.1", port=1)
    with pytest.raises(StartupFailed, match="which is not loopback"):
        run_follower(settings(master=master))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rank": 0}, "--rank is 0, allowed is 1 to 1"),
        ({"rank": 2}, "--rank is 2, allowed is 1 to 1"),
        ({"tp": 1}, "--tp is 1, allowed is 2 to 2"),
        ({"master_timeout_s": 0}, "--master-timeout is 0, allowed is 1 to 86400"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_limit(changes, says):
    with pytest.raises(StartupFailed, match=says):
        settings(**changes)
