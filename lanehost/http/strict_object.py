"""What every JSON object of the OpenAI door is: its fields understood, neutral or refused."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError, to_json

# Field that is known and not built → the values that ask for nothing; null always is one.
Neutral = dict[str, tuple[object, ...]]


def not_built(field: str, message: str) -> PydanticCustomError:
    """Make an error that becomes `NotBuilt` with the path of the value and `field` behind it."""
    return PydanticCustomError("not_built", "{message}", {"field": field, "message": message})


def refusal(message: str, field: str = "") -> PydanticCustomError:
    """Make an error that becomes `InvalidRequest` with just this message."""
    return PydanticCustomError("refusal", "{message}", {"field": field, "message": message})


def _refuse_unless_neutral(field: str, value: object, neutral: tuple[object, ...]) -> None:
    # By type as well: True is equal to 1, and is no count.
    if value is None or any(type(value) is type(one) and value == one for one in neutral):
        return
    allowed = " or ".join(to_json(one).decode() for one in (*neutral, None))
    raise not_built(field, f"is not built; leave it out, or send {allowed}")


class Body(BaseModel):
    """A JSON object whose every field is understood, neutral or refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    not_built: ClassVar[Neutral] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for field in cls.not_built.keys() & value.keys():
            _refuse_unless_neutral(field, value[field], cls.not_built[field])
        for field in value:
            if field not in cls.not_built and field not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown", "is not a field that this door knows", {"field": field[:100]}
                )
        return {field: item for field, item in value.items() if field not in cls.not_built}
