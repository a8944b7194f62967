"""A group over two hosts, whose network is cut in the middle of a reply, and which loses parts."""

import signal

import psutil
import pytest

from lanehost.rank_group.certificates import make_certificates
from tests.support.served import all_gone
from tests.support.two_hosts import ADDRESSES, TwoHosts, has_namespaces

pytestmark = [
    pytest.mark.netns,
    pytest.mark.model,
    pytest.mark.ranks,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not has_namespaces(), reason="scripts/hosts says what is missing"),
]
MASTER = f"{ADDRESSES[0]}:50050"
PROMPT = ("--prompt", "Once upon a time there was", "--max-tokens", "100")


class Group:
    """A master on host 0, and an agent on host 1 that can be brought anew."""

    def __init__(self, hosts, folder):
        self.hosts = hosts
        certificates = make_certificates(folder / "tls", ADDRESSES, days=1)
        self._tls = [("--rank-tls", str(one)) for one in certificates]
        self.agent = self.follow()
        self.master = self.serve()
        self.wait_ready()

    def serve(self):
        return self.hosts.run(
            0, "serve", "--tp", "2", "--rank", "0", "--master", MASTER, *self._tls[0],
            "--http-port", "off", "--threads", "1", "--log-json", "--spare-rank", "off",
        )  # fmt: skip

    def wait_ready(self):
        lines = [self.master.process.stdout.readline() for _ in range(2)]
        assert "waits for ranks of other hosts at 10.9.0.1:50050" in lines[0], self.master.log()
        assert "on 2 ranks" in lines[1], self.master.log()

    def follow(self):
        return self.hosts.run(
            1, "follow", "--tp", "2", "--rank", "1", "--master", MASTER, *self._tls[1],
            "--log-json", "--spare-rank", "off",
        )  # fmt: skip

    def rank_1(self):
        (rank,) = psutil.Process(self.agent.pid).children()
        return rank

    def begin_reply(self):
        """A reply of which the first words are there."""
        reply = self.hosts.run(0, "generate", *PROMPT)
        begun = reply.process.stdout.read(20)
        assert len(begun) == 20
        return reply, begun

    def whole_reply(self):
        reply = self.hosts.run(0, "generate", *PROMPT)
        text = reply.process.stdout.read()
        assert reply.ended() == 0
        return text


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with TwoHosts(folder) as hosts:
        yield Group(hosts, folder)


def finish(reply, begun):
    text = begun + reply.process.stdout.read()
    assert reply.ended() == 0, reply.log()
    return text


def num_epochs(group):
    return group.master.log().count('"event": "epoch_ended"')


def test_hosts_apart_add_over_gloo(group):
    """They share the kernel, and its boot id, and still no process ids: memory cannot be had."""
    assert '"collective": "gloo"' in group.master.log()
    assert '"event": "memory_not_shared"' in group.master.log()


@pytest.mark.parametrize("cut", ["packets", "cable"])
def test_a_reply_goes_on_where_it_was_when_the_network_is_whole_again(group, cut):
    whole = group.whole_reply()
    former, ended = group.rank_1(), num_epochs(group)
    reply, begun = group.begin_reply()
    hosts = group.hosts
    hosts.lose_packets() if cut == "packets" else hosts.take_down()
    group.master.wait_log('"event": "epoch_ended"', count=ended + 1)
    # The other side notices by itself: it is told nothing.
    assert all_gone([former], within_s=60)
    assert reply.process.poll() is None
    hosts.find_packets() if cut == "packets" else hosts.bring_up()
    assert finish(reply, begun) == whole
    assert group.agent.process.poll() is None
    assert group.rank_1().pid != former.pid


def test_a_reply_goes_on_when_another_agent_takes_the_place_of_one_that_was_killed(group):
    whole = group.whole_reply()
    former = group.rank_1()
    reply, begun = group.begin_reply()
    group.agent.signal(signal.SIGKILL)
    assert all_gone([former], within_s=10)
    group.agent.ended()
    group.agent = group.follow()
    assert finish(reply, begun) == whole


def test_a_master_that_is_killed_takes_the_rank_with_it_and_a_new_one_finds_the_agent(group):
    whole, agent, rank = group.whole_reply(), group.agent, group.rank_1()
    group.master.signal(signal.SIGKILL)
    assert all_gone([rank], within_s=30)
    group.master.ended()
    group.master = group.serve()
    group.wait_ready()
    assert group.whole_reply() == whole
    assert agent.process.poll() is None


def test_a_master_that_ends_in_order_ends_its_agent_in_order(group):
    rank = group.rank_1()
    group.master.signal(signal.SIGTERM)
    assert group.master.ended() == 0
    assert group.agent.ended() == 0
    assert all_gone([rank], within_s=10)
    # For the tests that come later, in whatever order.
    group.agent, group.master = group.follow(), group.serve()
    group.wait_ready()
