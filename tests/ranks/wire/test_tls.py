"""The folder of a node's certificates."""

import pytest

from lanehost.rank_group.certificates import make_certificates
from ranks.wire.tls import BadCertificates, channel_credentials, read_certificates


@pytest.fixture
def folder(tmp_path):
    return make_certificates(tmp_path, ["127.0.0.1"], days=1)[0]


def test_a_key_that_others_may_read_is_refused_with_its_mode(folder):
    (folder / "key.pem").chmod(0o640)
    with pytest.raises(BadCertificates, match=r"key\.pem has mode 0640, allowed is 0600 or less"):
        read_certificates(folder)


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem"])
def test_a_file_that_is_missing_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(BadCertificates, match=f"{name}: No such file"):
        read_certificates(folder)


def test_the_key_is_in_no_log(folder):
    node = read_certificates(folder)
    assert b"PRIVATE" in node.key
    assert "PRIVATE" not in repr(node)
    assert channel_credentials(node)
