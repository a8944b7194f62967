"""Certificates for the hosts of a group."""

import stat

import pytest

from lanehost.errors import StartupFailed
from lanehost.rank_group.certificates import make_certificates
from ranks.wire.tls import read_certificates


def test_keys_are_for_their_owner_alone_and_nodes_share_an_authority(tmp_path):
    one, other = make_certificates(tmp_path / "tls", ["10.0.0.1", "node-b"], days=1)
    for key in (tmp_path / "tls" / "ca-key.pem", one / "key.pem", other / "key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not (one / "ca-key.pem").exists()
    assert read_certificates(one).ca == read_certificates(other).ca


def test_an_authority_that_is_there_signs_for_more_hosts(tmp_path):
    (first,) = make_certificates(tmp_path, ["a"], days=1)
    (second,) = make_certificates(tmp_path, ["b"], days=1)
    assert read_certificates(first).ca == read_certificates(second).ca


def test_what_is_there_is_never_overwritten(tmp_path):
    (made,) = make_certificates(tmp_path, ["a"], days=1)
    before = (made / "key.pem").read_bytes()
    with pytest.raises(StartupFailed, match="File exists"):
        make_certificates(tmp_path, ["a"], days=1)
    assert (made / "key.pem").read_bytes() == before
