import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.digests import digest_files


def test_the_digest_changes_with_any_byte_name_or_border(tmp_path):
    def digest(**files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return digest_files([folder / name for name in files])

    base = digest(a=b"one", b=b"two")
    assert base == digest(a=b"one", b=b"two")
    others = {
        digest(a=b"onf", b=b"two"),
        digest(a=b"onet", b=b"wo"),
        digest(a=b"one", c=b"two"),
        digest(a=b"one"),
        digest(b=b"two", a=b"one"),
    }
    assert base not in others
    assert len(others) == 5


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    with pytest.raises(BadCheckpoint, match="gone: cannot be read"):
        digest_files([tmp_path / "gone"])
