import pytest

from lanehost.http.forms import ChatForm, CompletionForm, Envelope, usage_json
from lanehost.job import FinishReason, Usage


@pytest.mark.parametrize("form", [ChatForm(), CompletionForm()])
def test_chunks_put_together_say_what_the_reply_says(form) -> None:
    envelope = Envelope(form=form, job_id="j", created_s=1, model="m", fingerprint="f")
    usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=2)
    whole = envelope.whole("ab", FinishReason.LENGTH, usage)
    chunks = [envelope.chunk(form.chunk(text)) for text in ("a", "b")]
    last = envelope.chunk(form.closing(), reason=FinishReason.LENGTH)
    for key in ("id", "created", "model", "system_fingerprint"):
        assert {part[key] for part in (*chunks, last)} == {whole[key]}
    assert last["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"


def test_usage_adds_up() -> None:
    assert usage_json(
        Usage(
            prompt_tokens=4,
            cached_tokens=3,
            completion_tokens=2,
            disk_cached_tokens=1,
            image_tokens=2,
        )
    ) == {
        "prompt_tokens": 4,
        "completion_tokens": 2,
        "total_tokens": 6,
        "prompt_tokens_details": {
            "cached_tokens": 3,
            "disk_cached_tokens": 1,
            "image_tokens": 2,
        },
    }
