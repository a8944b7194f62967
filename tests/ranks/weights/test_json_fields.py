import json

import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.json_fields import JsonFields, read_json


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": ' * 100_000, "\udcff", "9" * 10_000])
def test_a_file_that_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadCheckpoint, match=r"config.json: "):
        read_json(tmp_path / "config.json")


def test_a_missing_or_huge_file_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        read_json(tmp_path / "config.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(BadCheckpoint, match="larger than the limit"):
        read_json(tmp_path / "huge.json")


def fields(tmp_path, **values):
    return JsonFields(tmp_path / "config.json", values)


@pytest.mark.parametrize(
    ("read", "value", "words"),
    [
        ("whole", 1.5, "a is 1.5, a whole number"),
        ("whole", True, "a is True, a whole number"),
        ("whole", 10**40, "a is beyond the limit"),
        ("real", "1", "a is '1', a number"),
        ("real", -(10**40), "a is beyond the limit"),
        ("truth", 1, "a is 1, true or false"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_by_file_and_name(tmp_path, read, value, words):
    with pytest.raises(BadCheckpoint, match=rf"config.json: {words}"):
        getattr(fields(tmp_path, a=value), read)("a")
    with pytest.raises(BadCheckpoint, match="b is None"):
        getattr(fields(tmp_path, a=value), read)("b")


def test_an_object_within_has_defaults_for_what_is_not_there(tmp_path):
    inner = fields(tmp_path, text={"a": 2}).part("text", {"a": 1, "b": 3})
    assert (inner.whole("a"), inner.whole("b")) == (2, 3)
    with pytest.raises(BadCheckpoint, match="text is None, an object is needed"):
        fields(tmp_path).part("text", {})


def test_an_object_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"a": [1]}))
    assert read_json(tmp_path / "config.json") == {"a": [1]}
