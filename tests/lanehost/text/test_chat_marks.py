"""The laws of lanehost.text.chat_marks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Pipeline

from lanehost.job import ChatMessage, ImagePart, Role, TextPart
from lanehost.text.chat_marks import chat_marks
from lanehost.text.chat_template import ChatTemplate
from lanehost.text.model_text import load_model_text
from tests.support.text_models import CHATML, train_byte_level, write_folder

SYSTEM = "You are a careful clerk. " * 8

# Gemma and Mistral: the system prompt stands in the first turn, and alone it is refused.
SYSTEM_INSIDE = (
    "{% if messages[0].role == 'system' %}{% set sys = messages[0].content ~ '\\n' %}"
    "{% set turns = messages[1:] %}{% else %}"
    "{% set sys = '' %}{% set turns = messages %}{% endif %}"
    "{% if not turns %}{{ raise_exception('a user must speak') }}{% endif %}"
    "{% for m in turns %}[{{ m.role }}] {{ sys if loop.first else '' }}{{ m.content }} [/]"
    "{% endfor %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
) + CHATML


def chat(*turns):
    return tuple(ChatMessage(role=Role(role), content=content) for role, content in turns)


def template(source):
    return ChatTemplate(source, bos_token="<|im_start|>", eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_model_text(write_folder(tmp_path_factory.mktemp("small") / "m")).tokenizer


class CountedTemplate:
    def __init__(self, source):
        self.template = template(source)
        self.rendered = []

    def render(self, messages):
        self.rendered.append(messages)
        return self.template.render(messages)


def ids_and_marks(messages, source, tokenizer):
    made = source if isinstance(source, CountedTemplate | ChatTemplate) else template(source)
    encode = encoder(made, tokenizer)
    ids = encode(messages)
    return ids, chat_marks(messages, ids, encode=encode)


def encoder(made, tokenizer):
    return lambda messages: tokenizer.encode_rendered(made.render(messages))


def texts_before_marks(messages, source, tokenizer):
    ids, marks = ids_and_marks(messages, source, tokenizer)
    return [tokenizer.decode(ids[:mark], keep_special=True) for mark in marks]


def num_common(ours, theirs):
    pairs = zip(ours, theirs, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))


def test_marks_are_where_the_first_message_behind_the_system_prompt_and_the_last_begin(tokenizer):
    turns = chat(("system", "Be brief."), ("user", "hat"), ("assistant", "mat"), ("user", "sun"))
    system = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    so_far = f"{system}hat<|im_end|>\n<|im_start|>assistant\nmat<|im_end|>\n<|im_start|>user\n"
    assert texts_before_marks(turns, CHATML, tokenizer) == [system, so_far]


def test_several_system_messages_are_one_system_prompt(tokenizer):
    turns = chat(("system", "a"), ("system", "b"), ("user", "c"))
    before = "".join(f"<|im_start|>system\n{c}<|im_end|>\n" for c in "ab") + "<|im_start|>user\n"
    assert texts_before_marks(turns, CHATML, tokenizer) == [before]


def test_a_chat_of_system_messages_alone_has_a_mark_where_the_last_begins(tokenizer):
    turns = chat(("system", "a"), ("system", "b"))
    before = "<|im_start|>system\na<|im_end|>\n<|im_start|>system\n"
    assert texts_before_marks(turns, CHATML, tokenizer) == [before]


def test_a_system_prompt_that_the_template_adds_lies_before_the_mark(tokenizer):
    before = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n"
    assert texts_before_marks(chat(("user", "hat")), DEFAULT_SYSTEM, tokenizer) == [before]


def test_a_system_prompt_that_the_template_puts_into_the_first_turn_lies_before_the_mark(tokenizer):
    turns = chat(("system", "Be brief."), ("user", "hat"))
    assert texts_before_marks(turns, SYSTEM_INSIDE, tokenizer) == ["[user] Be brief.\n"]


@pytest.mark.parametrize("content", ["0", "1", "01", "", "  0 hats", "0" * 40])
@pytest.mark.parametrize("written", ["message['content']", "message['content'] | trim"])
def test_words_that_are_those_of_the_other_chat_move_no_mark(tokenizer, content, written):
    source = CHATML.replace("message['content']", f"({written})")
    before = texts_before_marks(chat(("user", content)), source, tokenizer)
    assert before == ["<|im_start|>user\n"]


def test_a_template_that_refuses_the_other_chat_gives_no_mark_and_no_error(tokenizer):
    source = "{% if messages | length == 2 %}{{ raise_exception('no') }}{% endif %}" + CHATML
    turns = chat(("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))
    assert len(ids_and_marks(turns, CHATML, tokenizer)[1]) == 2
    assert len(ids_and_marks(turns, source, tokenizer)[1]) == 1


def test_a_template_that_writes_earlier_turns_anew_gives_an_earlier_mark(tokenizer):
    """Each turn is written with how many follow it: no turn is alike in a longer chat."""
    source = "{% for m in messages %}{{ m.role }}{{ loop.revindex }}{{ m.content }}{% endfor %}"
    turns = chat(("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))
    assert texts_before_marks(turns, source, tokenizer) == [
        "system",
        "system4auser3bassistant2cuser1",
    ]


def test_the_other_chat_may_end_where_this_one_goes_on(tokenizer):
    turns = chat(("user", "a"), ("assistant", "b"))
    roles_only = "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}"
    assert texts_before_marks(turns, roles_only, tokenizer) == ["<|im_start|>user"]


@pytest.mark.parametrize("source", ["nothing", "{{ messages[-1].content }}"])
def test_a_place_at_an_end_of_the_prompt_is_no_mark(tokenizer, source):
    assert ids_and_marks(chat(("user", "hat")), source, tokenizer)[1] == ()


def test_no_messages_no_marks(tokenizer):
    assert chat_marks((), [1, 2], encode=encoder(template(CHATML), tokenizer)) == ()


BOX = "[I]"


def picture_ids(messages):
    """One id a letter; an image is three ids that are the same for all images."""
    text = "".join(
        f"<{message.role.value}>" + (message.content if isinstance(message.content, str) else box)
        for message in messages
        for box in ["".join(getattr(part, "text", BOX) for part in message.content)]
    )
    return [ord(letter) for letter in text]


def marks_with_images(*messages):
    ids = picture_ids(messages)
    text = "".join(map(chr, ids))
    blocks = tuple(
        range(n, n + len(BOX)) for n in range(len(text)) if text[n : n + len(BOX)] == BOX
    )
    marks = chat_marks(messages, ids, encode=picture_ids, blocks=blocks)
    return [text[:mark] for mark in marks]


def asked(*parts):
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return ChatMessage(role=Role.USER, content=content)


PICTURE = ImagePart(b"x")


def test_a_question_behind_an_image_is_marked_before_and_behind_it():
    assert marks_with_images(asked(PICTURE, "what?")) == ["<user>", "<user>[I]"]


def test_a_question_before_an_image_is_marked_where_it_begins():
    assert marks_with_images(asked("what?", PICTURE)) == ["<user>"]


def test_images_of_earlier_turns_lie_before_the_last_mark():
    turns = (asked(PICTURE, "a"), ChatMessage(role=Role.ASSISTANT, content="b"), asked("c"))
    assert marks_with_images(*turns) == ["<user>", "<user>[I]a<assistant>b<user>"]


def test_marks_of_a_question_about_images_cost_at_most_three_further_renderings():
    rendered = []

    def encode(messages):
        rendered.append(messages)
        return picture_ids(messages)

    turns = (asked(PICTURE, "a"), ChatMessage(role=Role.ASSISTANT, content="b"), asked(PICTURE))
    chat_marks(turns, picture_ids(turns), encode=encode)
    assert len(rendered) == 3


def test_an_image_alone_is_marked_before_it():
    assert marks_with_images(asked(PICTURE)) == ["<user>"]


def test_no_mark_is_within_a_block():
    messages = (ChatMessage(role=Role.USER, content="[Iabc"),)
    ids = picture_ids(messages)
    block = range(5, 9)
    assert chat_marks(messages, ids, encode=picture_ids, blocks=(block,)) == (5,)


@pytest.mark.parametrize(("num_turns", "most"), [(1, 1), (2, 1), (3, 2), (40, 2)])
def test_marks_of_texts_cost_at_most_two_further_renderings(tokenizer, num_turns, most):
    roles = ["system", *["user", "assistant"] * num_turns][:num_turns]
    counted = CountedTemplate(CHATML)
    ids_and_marks(chat(*((role, "hat") for role in roles)), counted, tokenizer)
    assert len(counted.rendered) == 1 + most


words = st.text(st.sampled_from("ab 01\n가🌱"), max_size=6)
spoken = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), words), max_size=4)


@settings(deadline=None)
@given(
    st.sampled_from([CHATML, SYSTEM_INSIDE, DEFAULT_SYSTEM, "{{ messages | tojson }}"]),
    st.booleans(),
    st.tuples(spoken, spoken),
    st.tuples(st.text("abcd", min_size=1), st.text("efgh", min_size=1)),
)
def test_two_chats_that_part_at_a_message_have_all_before_its_mark_in_common(
    source, has_system, tails, firsts
):
    """Also with other turns behind: what comes later changes nothing of what is before it."""
    tokenizer = SMALL
    begin = [("system", "Be brief.")] if has_system else []
    ours, theirs = (
        chat(*begin, ("user", first), *tail) for first, tail in zip(firsts, tails, strict=True)
    )
    our_ids, marks = ids_and_marks(ours, source, tokenizer)
    their_ids, _ = ids_and_marks(theirs, source, tokenizer)
    assert list(marks) == sorted(set(marks))
    assert all(0 < mark < len(our_ids) for mark in marks)
    assert num_common(our_ids, their_ids) == marks[0]


class _Small:
    """A byte-level pipeline as the tokenizer of a model."""

    def __init__(self, pipeline: Pipeline):
        self.pipeline = pipeline

    def encode_rendered(self, text):
        return self.pipeline.encode(text, add_special_tokens=False).ids


SMALL = _Small(train_byte_level())


@pytest.mark.model
def test_two_chats_with_one_system_prompt_part_at_the_first_mark(embedded_text):
    questions = ("What is a lane?", "Name three colours.")
    ids, marks = zip(
        *(
            ids_and_marks(
                chat(("system", SYSTEM), ("user", question)),
                embedded_text.template,
                embedded_text.tokenizer,
            )
            for question in questions
        ),
        strict=True,
    )
    assert marks[0] == marks[1]
    assert num_common(*ids) == marks[0][0]
    system_ids = embedded_text.tokenizer.encode(SYSTEM)
    assert marks[0][0] > len(system_ids)


@pytest.mark.model
def test_a_turn_that_is_asked_anew_parts_at_the_last_mark(embedded_text):
    so_far = (("system", SYSTEM), ("user", "What is a lane?"), ("assistant", "A seat."))
    one, other = (
        ids_and_marks(
            chat(*so_far, ("user", question)), embedded_text.template, embedded_text.tokenizer
        )
        for question in ("Why?", "Name three colours.")
    )
    assert one[1] == other[1]
    assert num_common(one[0], other[0]) == one[1][-1]
