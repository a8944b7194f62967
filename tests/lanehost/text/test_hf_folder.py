"""The laws of lanehost.text.hf_folder."""

import pytest

from lanehost.errors import StartupFailed
from lanehost.text.hf_folder import HfFolder


def test_files_are_read_by_name(tmp_path):
    (tmp_path / "a.json").write_text('{"é": 1}', encoding="utf-8")
    folder = HfFolder(tmp_path)

    assert folder.need_text("a.json") == '{"é": 1}'
    assert folder.fields("a.json") == folder.need_fields("a.json") == {"é": 1}


def test_an_absent_file_has_no_text_and_no_fields(tmp_path):
    assert HfFolder(tmp_path).text("a.json") is None
    assert HfFolder(tmp_path).fields("a.json") == {}


def test_an_absent_file_that_is_needed_is_named(tmp_path):
    with pytest.raises(StartupFailed, match=r"a\.json is absent; a model folder needs config"):
        HfFolder(tmp_path).need_fields("a.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff{}", "cannot be read"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[]", "holds no JSON object"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, says):
    (tmp_path / "a.json").write_bytes(content)

    with pytest.raises(StartupFailed, match=rf"a\.json {says}"):
        HfFolder(tmp_path).fields("a.json")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    (tmp_path / "a.json").mkdir()

    with pytest.raises(StartupFailed, match=r"a\.json cannot be read"):
        HfFolder(tmp_path).text("a.json")
