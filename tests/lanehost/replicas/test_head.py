"""The head of a prompt: what turns of a chat share, and whatever else is sent."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.replicas.head import prompt_head

SYSTEM = {"role": "system", "content": "You are terse. " * 4}
FIRST = {"role": "user", "content": "Name a river."}
LATER = [{"role": "assistant", "content": "Rhine."}, {"role": "user", "content": "Another."}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def head(value, **options):
    return prompt_head(json.dumps(value).encode(), **options)


def chat(*messages, **options):
    return head({"model": "m", "messages": list(messages)}, **options)


def test_every_turn_of_a_chat_has_the_head_of_its_first():
    assert chat(SYSTEM, FIRST) == chat(SYSTEM, FIRST, *LATER)
    assert chat(FIRST) == chat(FIRST, *LATER)


def test_chats_with_one_long_system_prompt_share_a_head_and_with_a_short_one_they_do_not():
    other = {"role": "user", "content": "Name a hill."}
    assert chat(SYSTEM, FIRST, head_chars=40) == chat(SYSTEM, other, head_chars=40)
    assert chat(SYSTEM, FIRST) != chat(SYSTEM, other)


def test_options_and_the_form_of_the_text_do_not_matter():
    parts = {"role": "user", "content": [{"type": "text", "text": "Name "}, {"text": "a river."}]}
    assert chat(parts) == chat(FIRST)
    assert head({"prompt": "Once", "max_tokens": 3}) == head({"seed": 7, "prompt": ["Once"]})


def test_chats_about_other_images_have_other_heads_though_their_files_begin_alike():
    def asked(tail):
        url = f"data:image/png;base64,{'A' * 2000}{tail}"
        image = {"type": "image_url", "image_url": {"url": url}}
        return {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}

    assert chat(asked("x")) == chat(asked("x"), *LATER) != chat(asked("y"))
    assert len(chat(asked("x"))) < 100
    assert chat({"role": "user", "content": [{"image_url": 5}]}) == chat({"role": "user"})


def test_a_text_is_its_first_characters_and_ids_are_the_first_quarter_as_many():
    assert head({"prompt": "abcdef"}, head_chars=4) == head({"prompt": "abcdXY"}, head_chars=4)
    assert head({"prompt": "abcdef"}, head_chars=5) != head({"prompt": "abcdXY"}, head_chars=5)
    ids = list(range(100, 120))
    assert head({"prompt": ids}, head_chars=16) == head({"prompt": [*ids[:4], 7]}, head_chars=16)
    assert head({"prompt": ids}, head_chars=16) != head({"prompt": [*ids[:3], 7]}, head_chars=16)
    assert head({"prompt": [ids]}) == head({"prompt": ids})


def test_a_role_is_no_part_of_the_text_beside_it():
    assert chat({"role": "user", "content": "a"}) != chat({"role": "use", "content": "ra"})


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"7", b'{"messages": []}', b"\xff" * 900])
def test_what_is_no_request_has_its_first_bytes_for_a_head(body):
    assert prompt_head(body) == body[:512]


@given(st.dictionaries(st.sampled_from(["messages", "prompt", "x"]), JSON), st.integers(1, 600))
def test_whatever_json_comes_has_a_bounded_head(value, head_chars):
    first = head(value, head_chars=head_chars)
    assert first == head(value, head_chars=head_chars)
    assert len(first) <= 40 * head_chars + 40


@given(st.binary(max_size=200))
def test_whatever_bytes_come_have_a_bounded_head(body):
    assert len(prompt_head(body, head_chars=50)) <= 200
