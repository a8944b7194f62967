"""The laws of lanehost.engine.stops."""

import doctest
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.engine import stops
from lanehost.engine.stops import StopRules, check_stop
from lanehost.errors import InvalidRequest
from lanehost.job import FinishReason, StopParams

EOS = 2
WORD = 7


@dataclass(frozen=True)
class Reply:
    """A whole reply as a client sees it."""

    text: str
    reason: FinishReason | None
    matched: str | int | None
    num_tokens: int
    deltas: tuple[str, ...]


def run(deltas, *, stop, max_tokens=1000, end_id=EOS, tail=""):
    """Push the deltas as tokens, then the end id if nothing ended the reply before."""
    rules = StopRules(frozenset({EOS}), stop, max_tokens=max_tokens)
    texts = []
    ended = None
    for token_id, text in [*((WORD, delta) for delta in deltas), (end_id, "")]:
        verdict = rules.push(token_id, text)
        texts.append(verdict.text)
        if verdict.reason is not None:
            ended = verdict
            break
    assert ended is not None
    last = rules.finish(tail)
    texts.append(last.text)
    return Reply("".join(texts), last.reason, last.matched, rules.num_tokens, tuple(texts))


def first_match(text, strings):
    """The plain oracle: earliest start, then the longest."""
    starts = [(text.find(string), -len(string), string) for string in strings if string in text]
    return min(starts, default=None)


def cut_up(text, cuts):
    """The text in pieces, cut at the given places; equal cuts give empty pieces."""
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


few_letters = st.text(alphabet="ab가🌱", max_size=60)
stop_strings = st.lists(st.text(alphabet="ab가🌱", min_size=1, max_size=6), min_size=1, max_size=6)
cuts = st.lists(st.integers(0, 60), max_size=20)


@given(text=few_letters, strings=stop_strings, cuts=cuts)
def test_any_split_gives_the_text_before_the_first_match(text, strings, cuts):
    reply = run(cut_up(text, cuts), stop=StopParams(strings=tuple(strings)))

    expected = first_match(text, strings)
    if expected is None:
        assert (reply.text, reply.reason, reply.matched) == (text, FinishReason.EOS, EOS)
    else:
        start, _, string = expected
        assert (reply.text, reply.reason, reply.matched) == (
            text[:start],
            FinishReason.STOP,
            string,
        )


@given(text=few_letters, strings=stop_strings, cuts=cuts)
def test_no_more_text_is_held_than_could_begin_a_stop_string(text, strings, cuts):
    rules = StopRules(frozenset(), StopParams(strings=tuple(strings)), max_tokens=1000)
    seen = sent = ""
    for delta in cut_up(text, cuts):
        seen += delta
        verdict = rules.push(WORD, delta)
        sent += verdict.text
        if verdict.reason is not None:
            return
        held = seen[len(sent) :]
        assert not held or any(string.startswith(held) for string in strings)


@given(text=few_letters, tail=few_letters, strings=stop_strings, cuts=cuts)
def test_the_tail_is_part_of_the_text(text, tail, strings, cuts):
    deltas = cut_up(text, cuts)
    stop = StopParams(strings=tuple(strings))

    reply = run(deltas, stop=stop, tail=tail, max_tokens=len(deltas))

    expected = first_match(text + tail, strings)
    if expected is None:
        assert (reply.text, reply.reason) == (text + tail, FinishReason.LENGTH)
    else:
        assert (reply.text, reply.matched) == ((text + tail)[: expected[0]], expected[2])


def test_a_stop_string_split_over_tokens_never_leaks():
    reply = run(["Hello <", "en", "d", "> more"], stop=StopParams(strings=("<end>",)))

    assert reply.deltas == ("Hello ", "", "", "", "")
    assert (reply.reason, reply.matched, reply.num_tokens) == (FinishReason.STOP, "<end>", 4)


def test_held_text_is_released_as_soon_as_it_cannot_match():
    reply = run(["a <", "en", "t> b"], stop=StopParams(strings=("<end>",)))

    assert reply.deltas == ("a ", "", "<ent> b", "", "")


def test_held_text_is_delivered_when_the_model_ends_the_reply():
    reply = run(["a <", "en"], stop=StopParams(strings=("<end>",)))

    assert (reply.text, reply.reason, reply.matched) == ("a <en", FinishReason.EOS, EOS)


def test_held_text_is_delivered_at_the_length_limit():
    reply = run(["a <", "en"], stop=StopParams(strings=("<end>",)), max_tokens=2)

    assert (reply.text, reply.reason, reply.matched) == ("a <en", FinishReason.LENGTH, None)


def test_an_earlier_start_wins_over_an_earlier_end():
    reply = run(["xa", "b", "c"], stop=StopParams(strings=("b", "abc")))

    assert (reply.text, reply.matched) == ("x", "abc")


def test_a_match_that_nothing_overtakes_holds():
    reply = run(["xa", "b", "d"], stop=StopParams(strings=("b", "abc")))

    assert (reply.text, reply.matched, reply.num_tokens) == ("xa", "b", 3)


def test_of_matches_that_start_together_the_longest_wins():
    reply = run(["x\n", "\n"], stop=StopParams(strings=("\n", "\n\n")))

    assert (reply.text, reply.matched) == ("x", "\n\n")


def test_a_waiting_match_counts_at_the_end_of_the_reply():
    reply = run(["x\n"], stop=StopParams(strings=("\n", "\n\n")), max_tokens=1)

    assert (reply.text, reply.reason, reply.matched) == ("x", FinishReason.STOP, "\n")


def test_a_stop_string_wins_over_the_length_limit_on_one_token():
    reply = run(["ab"], stop=StopParams(strings=("b",)), max_tokens=1)

    assert (reply.text, reply.reason, reply.matched) == ("a", FinishReason.STOP, "b")


def test_an_eos_id_wins_over_the_length_limit_on_one_token():
    reply = run([], stop=StopParams(), max_tokens=1)

    assert (reply.text, reply.reason, reply.num_tokens) == ("", FinishReason.EOS, 1)


def test_the_text_of_a_stop_id_is_not_part_of_the_reply():
    rules = StopRules(frozenset(), StopParams(token_ids=(9,), strings=("z",)), max_tokens=9)

    texts = [rules.push(WORD, "a").text, rules.push(9, "z").text, rules.finish("").text]

    assert (texts, rules.num_tokens) == (["a", "", ""], 2)


def test_a_stop_id_reports_itself():
    reply = run(["a"], stop=StopParams(token_ids=(9,)), end_id=9)

    assert (reply.text, reply.reason, reply.matched) == ("a", FinishReason.STOP, 9)


def test_an_id_that_is_both_is_reported_as_a_stop_id():
    reply = run([], stop=StopParams(token_ids=(EOS,)))

    assert (reply.reason, reply.matched) == (FinishReason.STOP, EOS)


def test_ignore_eos_goes_on_past_eos_but_not_past_a_stop_id():
    rules = StopRules(frozenset({EOS}), StopParams(ignore_eos=True, token_ids=(9,)), max_tokens=9)

    assert not rules.is_end_id(EOS)
    assert rules.push(EOS, "").reason is None
    assert rules.push(9, "").reason is FinishReason.STOP


def test_a_stop_string_in_the_tail_wins_over_the_id_behind_it():
    reply = run(["a"], stop=StopParams(strings=("\ufffd",)), tail="\ufffd")

    assert (reply.text, reply.reason, reply.matched) == ("a", FinishReason.STOP, "\ufffd")


def test_nothing_follows_a_settled_match():
    rules = StopRules(frozenset(), StopParams(strings=("b",)), max_tokens=9)

    assert rules.push(WORD, "abc").text == "a"
    assert rules.finish("\ufffd") == stops.StopVerdict(
        text="", reason=FinishReason.STOP, matched="b"
    )


def test_the_tail_is_delivered_where_there_are_no_stop_strings():
    assert run(["a"], stop=StopParams(), tail="\ufffd").text == "a\ufffd"


def test_a_reply_that_is_cut_off_releases_its_text_without_a_reason():
    rules = StopRules(frozenset(), StopParams(strings=("ab",)), max_tokens=9)
    rules.push(WORD, "xa")

    assert rules.finish("") == stops.StopVerdict(text="a")


def test_a_reply_of_no_tokens_has_ended_before_the_first():
    rules = StopRules(frozenset({EOS}), StopParams(strings=("a",)), max_tokens=0)

    assert repr(rules) == "<StopRules LENGTH 0/0>"
    with pytest.raises(AssertionError):
        rules.push(EOS, "")
    assert rules.finish("") == stops.StopVerdict(text="", reason=FinishReason.LENGTH)


def test_the_state_is_shown():
    rules = StopRules(frozenset({EOS}), StopParams(), max_tokens=3)
    before = repr(rules)
    rules.push(EOS, "")

    assert (before, repr(rules)) == ("<StopRules OPEN 0/3>", "<StopRules EOS 1/3>")


def test_a_push_after_the_end_is_our_fault():
    rules = StopRules(frozenset({EOS}), StopParams(), max_tokens=3)
    rules.push(EOS, "")

    with pytest.raises(AssertionError):
        rules.push(WORD, "a")


def test_work_is_linear_in_the_text_even_for_strings_that_nearly_match():
    rules = StopRules(frozenset(), StopParams(strings=("a" * 1000 + "b",)), max_tokens=10**6)
    lookups = 0

    class CountedBorders:
        def __getitem__(self, num_met, borders=rules._scan._strings[0]._borders):
            nonlocal lookups
            lookups += 1
            return borders[num_met]

    rules._scan._strings[0]._borders = CountedBorders()
    for _ in range(5000):
        rules.push(WORD, "aaac")

    assert 5000 < lookups <= 20000


def test_stop_rules_within_the_limits_are_taken():
    check_stop(StopParams(strings=("x" * 1024,) * 16, token_ids=(0, 99)), vocab_size=100)


@pytest.mark.parametrize(
    ("stop", "field", "says"),
    [
        (StopParams(strings=("a", "")), "stop.strings", "string 1 is empty"),
        (StopParams(strings=("a",) * 17), "stop.strings", "17 strings, at most 16"),
        (StopParams(strings=("x" * 1025,)), "stop.strings", "1025 characters, at most 1024"),
        (StopParams(token_ids=(100,)), "stop.token_ids", "id 100 is outside the vocabulary of 100"),
        (StopParams(token_ids=(-1,)), "stop.token_ids", "id -1 is outside"),
        (StopParams(token_ids=(1,) * 1025), "stop.token_ids", "1025 ids, at most 1024"),
    ],
)
def test_stop_rules_past_a_limit_are_refused_with_the_numbers(stop, field, says):
    with pytest.raises(InvalidRequest) as refusal:
        check_stop(stop, vocab_size=100)

    assert refusal.value.field == field
    assert says in refusal.value.reason


def test_the_examples_run():
    assert doctest.testmod(stops).failed == 0
