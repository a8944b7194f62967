"""Objects whose every field is understood, neutral or refused; test_body.py has them all."""

from typing import ClassVar

import pytest
from pydantic import ValidationError

from lanehost.http.errors import to_refusal
from lanehost.http.strict_object import Body, Neutral


class Lamp(Body):
    not_built: ClassVar[Neutral] = {"dimmed": (False,)}
    is_on: bool


def test_a_neutral_value_is_taken_and_gone():
    assert Lamp.model_validate({"is_on": True, "dimmed": False}) == Lamp(is_on=True)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"is_on": True, "dimmed": 0}, "dimmed: is not built; leave it out, or send false or null"),
        ({"is_on": True, "hue": 1}, "hue: is not a field that this door knows"),
        ({"is_on": 1}, "is_on: is 1, should be a valid boolean"),
    ],
)
def test_anything_else_is_refused_by_name(value, said):
    with pytest.raises(ValidationError) as caught:
        Lamp.model_validate(value)
    assert str(to_refusal(caught.value)) == said
