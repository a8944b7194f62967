"""HOST:PORT on a command line."""

import click
import pytest

from lanehost.cli_hosts import HostPort, build_rank_port
from lanehost.errors import StartupFailed


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("10.0.0.1:50050", ("10.0.0.1", 50050)),
        ("[::1]:7", ("::1", 7)),
        ("node-a:0", ("node-a", 0)),
    ],
)
def test_an_address_is_read_and_port_0_takes_a_free_one(text, pair):
    assert HostPort().convert(text, None, None) == pair
    assert HostPort().convert(pair, None, None) == pair


@pytest.mark.parametrize("text", ["node-a", ":1", "http://a:1", "a:b", "::1:5", "a:70000", ":0"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(click.BadParameter, match="should be HOST:PORT"):
        HostPort().convert(text, None, None)


def test_certificates_and_an_open_port_contradict_each_other():
    options = {
        "master": ("10.0.0.1", 1),
        "rank_tls": "tls",
        "insecure_rank_port": True,
        "rank_interface": None,
    }
    with pytest.raises(StartupFailed, match="--insecure-rank-port and --rank-tls tls contradict"):
        build_rank_port(options, ranks_here=None)
