"""Images by data URL."""

import base64
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.http.data_url import read_data_url
from tests.support import image_files as files

PNG = files.png()


def url(data=PNG, *, label="image/png", options=";base64"):
    return f"data:{label}{options},{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    ("label", "data"),
    [
        ("image/png", PNG),
        ("IMAGE/PNG", PNG),
        ("image/jpeg", files.jpeg()),
        ("image/jpg", files.jpeg()),
        ("image/webp", files.webp()),
    ],
)
def test_the_bytes_are_those_that_were_sent(label, data):
    assert read_data_url(url(data, label=label)) == data


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://example.org/cat.png", "is no data URL but https:; nothing is fetched"),
        ("HTTP://example.org/cat.png", "is no data URL but http:"),
        ("file:///etc/passwd", "is no data URL but file:"),
        ("cat.png", "is no data URL; nothing is fetched"),
        ("", "is no data URL; nothing is fetched"),
        ("data:image/png;base64", "is no data URL but data:"),
        (url(label="image/gif"), "is of the kind 'image/gif', allowed are image/jpeg, image/png"),
        (url(label=""), "is of the kind ''"),
        (url(options=""), "is not base64"),
        (url(options=";charset=utf-8;base64"), "is not base64"),
        (url(label="image/jpeg"), "says image/jpeg and is image/png"),
        ("data:image/png;base64,****", "is not valid base64"),
        ("data:image/png;base64,iVBO RwKG", "is not valid base64"),
        ("data:image/png;base64,iVBOR", "is not valid base64"),
        ("data:image/png;base64,iVBORé==", "is not valid base64"),
    ],
)
def test_anything_else_is_refused_in_words(text, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        read_data_url(text)


def test_what_is_no_picture_at_all_is_left_to_be_refused_by_its_number():
    assert read_data_url(url(b"GIF89a")) == b"GIF89a"


@given(st.text(max_size=60), st.booleans())
def test_whatever_the_text_it_is_bytes_or_a_refusal_that_repeats_little(text, has_head):
    with suppress(ValueError):
        assert isinstance(read_data_url("data:image/png;base64," * has_head + text), bytes)
    with pytest.raises(ValueError, match=r"^is .{0,200}$"):
        read_data_url(f"{text[:30]},")
