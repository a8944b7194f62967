"""What launchers tell: a table of environments, and of what is refused."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost import launchers
from lanehost.errors import StartupFailed
from lanehost.launchers import Asked, Launch, first_node, read_launch, tasks_of_node

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_NODEID": "1",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
}
LWS = {"LWS_LEADER_ADDRESS": "lws-0.lws.ns", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}


def launch(**changes):
    usual = {"rank": 1, "world_size": 2, "port": 50050, "ranks_here": 1}
    return Launch(**(usual | changes))


@pytest.mark.parametrize(
    ("environment", "asked", "found"),
    [
        (TORCHRUN, {}, launch(launcher="torchrun", host="node-a")),
        # Its own agent has the port; one that has none leaves it to the group.
        (
            TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "False"},
            {},
            launch(launcher="torchrun", host="node-a", port=29400),
        ),
        (TORCHRUN, {"port": 7}, launch(launcher="torchrun", host="node-a", port=7)),
        # One host: loopback, which needs no certificates.
        (
            TORCHRUN | {"LOCAL_WORLD_SIZE": "2"},
            {},
            launch(launcher="torchrun", host="127.0.0.1", ranks_here=2),
        ),
        (SLURM, {}, launch(launcher="slurm", host="gpu07")),
        # A step's numbers go before those of its job.
        (
            SLURM
            | {
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_NTASKS": "8",
                "SLURM_STEP_NODELIST": "gpu[09,11]",
                "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            },
            {},
            launch(launcher="slurm", host="gpu09"),
        ),
        # The list names nodes, and no network: an option may name another.
        (SLURM, {"host": "gpu07-ib", "port": 9}, launch(launcher="slurm", host="gpu07-ib", port=9)),
        (
            SLURM | {"SLURM_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"},
            {},
            launch(launcher="slurm", host="127.0.0.1", ranks_here=2),
        ),
        (LWS, {}, launch(launcher="lws", host="lws-0.lws.ns")),
        (LWS, {"rank": 1, "tp": 2}, launch(launcher="lws", host="lws-0.lws.ns")),
        (LWS, {"host": "lws-0.lws.ns"}, launch(launcher="lws", host="lws-0.lws.ns")),
        # torchrun within one of the others is the inner one.
        (SLURM | TORCHRUN, {}, launch(launcher="torchrun", host="node-a")),
        (SLURM | TORCHRUN, {"launcher": "slurm"}, launch(launcher="slurm", host="gpu07")),
        (SLURM | LWS, {"launcher": "lws"}, launch(launcher="lws", host="lws-0.lws.ns")),
    ],
)  # fmt: skip
def test_the_environment_says_where_a_process_is(environment, asked, found):
    assert read_launch(environment, Asked(**asked)) == found


@pytest.mark.parametrize(
    ("environment", "asked", "says"),
    [
        ({}, {}, "no launcher is in the environment"),
        ({"RANK": "0"}, {}, "no launcher is in the environment"),
        (SLURM | LWS, {}, "slurm and lws are both in the environment: give --launcher"),
        (TORCHRUN, {"rank": 0}, "--rank is 0, RANK is 1"),
        (TORCHRUN, {"tp": 1}, "--tp is 1, WORLD_SIZE is 2"),
        (TORCHRUN, {"host": "node-b"}, "--master's host is node-b, MASTER_ADDR is node-a"),
        (
            TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "False"},
            {"port": 7},
            "--master's port is 7, MASTER_PORT is 29400",
        ),
        (SLURM, {"rank": 3}, "--rank is 3, SLURM_PROCID is 1"),
        (SLURM, {"tp": 3}, "--tp is 3, SLURM_NTASKS is 2"),
        (LWS, {"tp": 3}, "--tp is 3, LWS_GROUP_SIZE is 2"),
        (LWS, {"host": "x"}, "--master's host is x, LWS_LEADER_ADDRESS is lws-0.lws.ns"),
        (LWS | {"LWS_WORKER_INDEX": "two"}, {}, "LWS_WORKER_INDEX is 'two', it must be a number"),
        (LWS | {"LWS_GROUP_SIZE": "0"}, {}, "LWS_GROUP_SIZE is '0', it must be a number of 1"),
        (
            {"SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "a"},
            {},
            "SLURM_STEP_NUM_TASKS or SLURM_NTASKS is missing",
        ),
        ({}, {"launcher": "lws"}, "LWS_LEADER_ADDRESS is missing|LWS_WORKER_INDEX is missing"),
        (SLURM | {"SLURM_TASKS_PER_NODE": "1"}, {}, "is '1', it does not tell of node 1"),
        (SLURM | {"SLURM_TASKS_PER_NODE": "x"}, {}, "is 'x', it does not tell of node 1"),
    ],
)
def test_what_is_missing_or_contradicts_is_refused_by_name_and_value(environment, asked, says):
    with pytest.raises(StartupFailed, match=says):
        read_launch(environment, Asked(**asked))


NODES = st.from_regex(r"[a-z]{1,4}[0-9]{1,3}", fullmatch=True)


@given(st.lists(NODES, min_size=1))
def test_the_first_of_plain_names_is_the_first(nodes):
    assert first_node(",".join(nodes)) == nodes[0]


@given(st.text(max_size=30))
def test_any_list_has_a_first_name_and_never_ends_in_an_odd_error(text):
    assert isinstance(first_node(text), str)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1))
def test_every_node_of_a_list_has_its_tasks(runs):
    text = ",".join(f"{tasks}(x{times})" if times > 1 else str(tasks) for tasks, times in runs)
    flat = [tasks for tasks, times in runs for _ in range(times)]
    assert [tasks_of_node("N", text, node) for node in range(len(flat))] == flat


def test_the_examples_of_the_module_are_right():
    assert doctest.testmod(launchers).failed == 0
