"""How a rank is started: what it is told of the network, and what its environment has."""

from pathlib import Path

import pytest

from lanehost.rank_group.starter import Doorway, RankStarter, ranks_here
from lanehost.settings import RankPortSettings

SHOW = ("sh", "-c", 'echo "$@" "$LANEHOST_RANK_TOKEN" "$NCCL_SOCKET_IFNAME" > "$0"')
DOORWAY = Doorway(master="10.0.0.1:5", bind_host="10.0.0.2", is_encrypted=True)


async def shown(tmp_path, port, doorway=DOORWAY):
    told = tmp_path / "told"
    starter = RankStarter((*SHOW, str(told)), world_size=2, port=port)
    process = await starter.start(1, doorway, token="secret")
    await process.exited()
    words = told.read_text().split()
    end = words.index("--death-fd")
    return words[:end], words[end + 2 :]


async def test_a_rank_of_one_host_is_told_of_no_network(tmp_path):
    words, environment = await shown(tmp_path, None)
    assert words == ["--master", "10.0.0.1:5", "--rank", "1", "--world-size", "2"]
    assert environment == ["secret"]


async def test_a_rank_of_several_hosts_is_told_where_it_is_and_how_to_prove_itself(tmp_path):
    port = RankPortSettings(host="10.0.0.1", port=5, tls=Path("tls"), interface="eth1")
    words, environment = await shown(tmp_path, port)
    assert " ".join(words) == (
        "--master 10.0.0.1:5 --bind-host 10.0.0.2 --ranks-here 1 --interface eth1 --tls tls "
        "--rank 1 --world-size 2"
    )
    assert environment == ["secret", "eth1"]


async def test_the_master_s_own_rank_dials_loopback_without_certificates(tmp_path):
    port = RankPortSettings(host="10.0.0.1", port=5, tls=Path("tls"))
    doorway = Doorway(master="127.0.0.1:9", bind_host="10.0.0.1", is_encrypted=False)
    words, _ = await shown(tmp_path, port, doorway)
    assert "--tls" not in words


@pytest.mark.parametrize(
    ("port", "num"),
    [
        (RankPortSettings(host="127.0.0.1", port=1), 2),
        (RankPortSettings(host="10.0.0.1", port=1), 1),
        (RankPortSettings(host="10.0.0.1", port=1, ranks_here=2), 2),
    ],
)
def test_ranks_share_a_host_where_that_was_told_or_where_the_master_is_on_loopback(port, num):
    assert ranks_here(port, 2) == num
