import os
import socket
from pathlib import Path

import pytest

from lanehost.disk_cache.regular_file import open_regular, read_regular


def test_a_file_is_read_up_to_the_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 9) == b"12345"
    assert read_regular(tmp_path / "file", 3) == b"123"


def test_what_is_made_is_this_users_alone(tmp_path):
    file = open_regular(tmp_path / "new", os.O_RDWR | os.O_CREAT)
    assert os.fstat(file).st_mode & 0o777 == 0o600
    os.close(file)


def num_open():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["link", "pipe", "folder", "socket", "nothing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, what):
    path = tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as one:
        match what:
            case "link":
                path.symlink_to("/dev/zero")
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "socket":
                one.bind(str(path))
            case _:
                pass
        before = num_open()
        with pytest.raises(OSError, match=r"regular|symbolic|No such"):
            read_regular(path, 9)
        assert num_open() == before
