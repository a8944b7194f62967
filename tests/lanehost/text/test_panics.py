"""The laws of lanehost.text.panics."""

import pytest
from tokenizers import Regex, pre_tokenizers

from lanehost.errors import InvalidRequest
from lanehost.text.panics import panics_as


def test_a_panic_becomes_the_error():
    cut = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")

    no = InvalidRequest("text", "no")
    with pytest.raises(InvalidRequest, match="text: no") as caught, panics_as(no):
        cut.pre_tokenize_str("a" * 28 + "b")

    assert type(caught.value.__cause__).__name__ == "PanicException"


@pytest.mark.parametrize("other", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_else_is_raised_passes(other):
    with pytest.raises(other), panics_as(InvalidRequest("text", "no")):
        raise other
