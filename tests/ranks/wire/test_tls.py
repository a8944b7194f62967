"""The folder of a node's certificates."""

import pytest

from lanehost.rank_group.certificates import make_certificates
from ranks.wire.tls import BadCertificates, _check_mode, channel_credentials, read_certificates


@pytest.fixture
def folder(tmp_path):
    return make_certificates(tmp_path, ["127.0.0.1"], days=1)[0]


def test_a_key_that_others_may_read_is_refused_with_its_mode(folder):
    (folder / "key.pem").chmod(0o640)
    with pytest.raises(BadCertificates, match=r"key\.pem has mode 0640, allowed is 0600 or less"):
        read_certificates(folder)


class Facts:
    def __init__(self, mode, uid):
        self.st_mode, self.st_uid = mode, uid


@pytest.mark.parametrize(
    ("mode", "owner", "user", "limit"),
    [
        (0o600, 7, 7, None),
        (0o400, 0, 0, None),
        (0o440, 0, 7, None),
        (0o640, 7, 7, "0600"),
        (0o640, 0, 0, "0600"),
        (0o644, 0, 7, "0640"),
        (0o660, 0, 7, "0640"),
    ],
)
def test_a_key_of_root_may_be_for_the_group_it_is_mounted_for(folder, mode, owner, user, limit):
    if limit is None:
        _check_mode(folder, Facts(mode, owner), user)
        return
    with pytest.raises(BadCertificates, match=f"has mode {mode:04o}, allowed is {limit} or less"):
        _check_mode(folder, Facts(mode, owner), user)


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
