"""What breaks a field's own rules is refused, with the field and the value."""

import math

import pytest

from ranks.errors import BadMessage
from ranks.wire.checks import DIGEST_BYTES, digest_of, distinct, known, positive, within


def test_what_keeps_the_rules_comes_back():
    assert positive("field", 1) == 1
    assert within("field", 0.5, 0.0, 1.0) == 0.5
    assert digest_of("field", bytes(DIGEST_BYTES)) == bytes(DIGEST_BYTES)
    assert known("field", 2, {2: "two"}) == "two"
    distinct("field", [1, 2, 3])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.1])
def test_a_number_outside_its_bounds_is_refused(value):
    with pytest.raises(BadMessage, match=r"draw\.top_p is .*, allowed is 0\.0 to 1\.0"):
        within("draw.top_p", value, 0.0, 1.0)


def test_infinity_is_no_number_even_where_there_is_no_upper_bound():
    with pytest.raises(BadMessage, match="is inf"):
        within("field", math.inf, 0.0, math.inf)


def test_each_refusal_names_the_field_and_the_value():
    with pytest.raises(BadMessage, match=r"form\.epoch is 0, the least is 1"):
        positive("form.epoch", 0)
    with pytest.raises(BadMessage, match=r"plan\.digest has 3 bytes"):
        digest_of("plan.digest", b"abc")
    with pytest.raises(BadMessage, match="lanes: lane 4 is there twice"):
        distinct("lanes", [4, 5, 4])
    with pytest.raises(BadMessage, match=r"fault is 9, known are \[2\]"):
        known("fault", 9, {2: "two"})
