"""The laws of lanehost.text.chat_template, against `transformers` where it has a word."""

import logging

import pytest
from transformers import PreTrainedTokenizerFast

from lanehost.errors import InvalidRequest, StartupFailed
from lanehost.job import ChatMessage, ImagePart, Role, TextPart, UploadedImage
from lanehost.text.chat_template import ChatTemplate
from tests.support.text_models import CHATML, train_byte_level

CHAT = (
    ChatMessage(role=Role.SYSTEM, content="Be brief."),
    ChatMessage(role=Role.USER, content="<b>숲</b> & 'x'"),
    ChatMessage(role=Role.ASSISTANT, content="{{ 7 * 7 }}"),
)

# Each uses something that the reference gives its templates.
TEMPLATES = {
    "chatml": CHATML,
    "bos and eos": "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}"
    "{% endfor %}",
    "whitespace rules": "{% for m in messages %}\n    {% if true %}\n  {{ m.role }}\n"
    "    {% endif %}\n{% endfor %}\n",
    "no tools, no documents": "{{ tools is none }}{{ documents is none }}{{ tools is defined }}",
    "tojson": "{{ messages | tojson }}{{ messages[1] | tojson(indent=2) }}",
    "loop controls": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
    "{{ m.role }}{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}",
    "loop facts": "{% for m in messages %}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.nextitem is defined }}{% endfor %}",
    "filtered loop": "{% for m in messages if m.role != 'user' %}{{ loop.index }}{{ m.role }}"
    "{% endfor %}",
    "empty loop": "{% for m in [] %}x{% else %}nothing{% endfor %}",
    "recursive loop": "{% for m in [[1, [2]], [3]] recursive %}"
    "{{ m if m is number else loop(m) }};{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "macro": "{% macro turn(m) %}[{{ m.role }}]{% endmacro %}{{ turn(messages[0]) }}",
    "generation": "{% for m in messages %}{% generation %}\n{{ m.content }}"
    "{% endgeneration %}{% endfor %}",
    "slices and methods": "{{ messages[1:][0].content.split('<')[1] | upper | trim }}",
    "unknown name": "[{{ no_such_name }}]",
}


def template(source, **bounds):
    return ChatTemplate(source, bos_token="<|im_start|>", eos_token="<|im_end|>", **bounds)


@pytest.fixture(scope="module")
def reference():
    return PreTrainedTokenizerFast(
        tokenizer_object=train_byte_level(), bos_token="<|im_start|>", eos_token="<|im_end|>"
    )


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_renders_as_in_the_reference(reference, source):
    chat = [{"role": message.role.value, "content": message.content} for message in CHAT]
    expected = reference.apply_chat_template(
        chat, chat_template=source, tokenize=False, add_generation_prompt=True
    )

    assert template(source).render(CHAT) == expected


def test_a_message_with_images_is_given_as_its_parts_and_one_without_as_text(reference):
    source = "{{ messages | tojson }}"
    parts = (TextPart("a"), ImagePart(b"x"), TextPart("b"), UploadedImage("u"))
    chat = (
        ChatMessage(role=Role.USER, content=parts),
        ChatMessage(role=Role.USER, content=(TextPart("c"), TextPart("d"))),
    )
    said = [{"type": "text", "text": "a"}, {"type": "image"}]
    said += [{"type": "text", "text": "b"}, {"type": "image"}]
    expected = reference.apply_chat_template(
        [{"role": "user", "content": said}, {"role": "user", "content": "cd"}],
        chat_template=source,
        tokenize=False,
    )
    assert template(source).render(chat) == expected


def test_content_is_never_run_as_a_template():
    assert "{{ 7 * 7 }}" in template(CHATML).render(CHAT)


def test_a_refusal_of_the_template_is_told_in_its_own_words():
    chatty = template("{{ raise_exception('Roles must alternate') }}")

    with pytest.raises(InvalidRequest) as refusal:
        chatty.render(CHAT)

    assert (refusal.value.field, refusal.value.reason) == ("chat", "Roles must alternate")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ messages[9].content }}", "has no element 9"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ no_such.name }}", "'no_such' is undefined"),
        ("{{ messages[0].content.index('zz') }}", "substring not found"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
    ],
)
def test_a_fault_of_the_template_on_a_chat_is_the_chats_refusal(source, says):
    with pytest.raises(InvalidRequest, match=f"chat: the model's chat template failed: .*{says}"):
        template(source).render(CHAT)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ lanehost_step.__closure__[0] }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(InvalidRequest, match="the model's chat template failed"):
        template(source).render(CHAT)


def test_no_template_is_told_the_date():
    asks = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}26 Jul{% endif %}"

    assert template(asks).render(CHAT) == "26 Jul"
    with pytest.raises(InvalidRequest, match="'strftime_now' is undefined"):
        template("{{ strftime_now('%Y') }}").render(CHAT)


def test_no_template_writes_without_end():
    assert template("{{ 'abcde' }}", max_chars=5).render(CHAT) == "abcde"
    with pytest.raises(InvalidRequest, match=r"chat: .* writes more than 5 characters"):
        template("{% for m in messages %}{{ 'abc' }}{% endfor %}", max_chars=5).render(CHAT)


NEVER_ENDS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops that show nothing": "{% for a in range(9999) if false %}x{% endfor %}",
    "macros that call twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(90) }}",
    "loops that call themselves": "{% for a in [[1, 2]] recursive %}{{ loop([a, a]) }}{% endfor %}",
}


@pytest.mark.parametrize("source", NEVER_ENDS.values(), ids=NEVER_ENDS)
def test_no_template_runs_without_end(source):
    with pytest.raises(InvalidRequest, match="takes more than 100 steps"):
        template(source, max_steps=100).render(CHAT)


def test_steps_are_counted_for_each_chat_alone():
    three_steps = template("{% for m in messages %}x{% endfor %}", max_steps=3)

    assert [three_steps.render(CHAT) for _ in range(3)] == ["xxx"] * 3


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 1000 }}",
        "{{ 1000 * [1] }}",
        "{{ 'a' * 60 + 'b' * 60 }}",
        "{{ 10 ** 1000 }}",
        "{{ (10 ** 29) * (10 ** 29) }}",
    ],
)
def test_no_operator_makes_what_is_too_large(source):
    with pytest.raises(InvalidRequest, match="would make more than 100 characters"):
        template(source, max_chars=100).render(CHAT)


def test_operators_work_within_the_bound():
    assert (
        template("{{ 'a' * 3 + 'b' }}{{ 2 * 3 + 2 ** 3 }}{{ 2.5 * 2 }}").render(()) == "aaab145.0"
    )


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a\n{% for %}", "line 2: "),
        ("{{ 1 | no_such_filter }}", "No filter named 'no_such_filter'"),
        ("{% no_such_tag %}", "unknown tag 'no_such_tag'"),
        ("{{ " + "(" * 5000, "the chat template does not compile"),
        ("{{ 1" + "0" * 5000 + " }}", "the chat template does not compile"),
    ],
)
def test_a_template_that_does_not_compile_is_refused_at_once(source, says):
    with pytest.raises(StartupFailed, match=f"the chat template does not compile.*{says}|{says}"):
        template(source)


def test_rendering_logs_nothing(caplog):
    with caplog.at_level(logging.DEBUG):
        template(CHATML).render(CHAT)

    assert caplog.records == []
