from lanehost.engine.reply import Reply, ReplyStep
from lanehost.engine.stops import StopRules
from lanehost.job import FinishReason, StopParams


class HalfCharacters:
    """Keeps one token back, as a tokenizer does in the middle of a character."""

    def __init__(self):
        self._held = ""

    def push(self, token_id):
        out, self._held = self._held, chr(token_id)
        return out

    def flush(self):
        return self._held


def make_reply(*, strings=(), eos=frozenset(), max_tokens=3):
    stops = StopRules(eos, StopParams(strings=strings), max_tokens=max_tokens)
    return Reply(HalfCharacters(), stops)


def feed(reply, text):
    return [reply.push(ord(character)) for character in text]


def test_what_the_detokenizer_holds_is_delivered_at_the_end():
    steps = feed(make_reply(), "abc")
    assert "".join(step.text for step in steps) == "abc"
    assert steps[-1].reason is FinishReason.LENGTH
    assert [step.reason for step in steps[:-1]] == [None, None]


def test_a_stop_string_in_the_last_held_characters_is_still_found():
    steps = feed(make_reply(strings=("c",)), "abc")
    assert "".join(step.text for step in steps) == "ab"
    assert steps[-1] == ReplyStep(steps[-1].text, FinishReason.STOP, "c")


def test_the_id_that_ends_a_reply_is_counted_but_gives_no_text():
    reply = make_reply(eos=frozenset({ord("!")}))
    steps = feed(reply, "a!")
    assert "".join(step.text for step in steps) == "a"
    assert (steps[-1].reason, steps[-1].matched) == (FinishReason.EOS, ord("!"))
    assert reply.num_tokens == 2
    assert repr(reply) == "<Reply 2 tokens>"
