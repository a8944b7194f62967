"""The rotary positions of a Hugging Face config.json.

Laws: a kind that is not built is refused by name; what is not there has the default of the
family's class in `transformers`.
"""

from typing import Any

from ranks.weights.json_fields import JsonFields
from ranks.weights.model_config import LinearRope, Llama3Rope, Rope


def read_rope(fields: JsonFields, context_length: int) -> Rope:
    """Read `rope_parameters`, which holds all since version 5, or what there was before.

    Raises:
        BadCheckpoint: A field is of the wrong kind, or its kind is not supported.
    """
    for name in ("rope_scaling", "rope_parameters"):
        values = fields.values.get(name)
        if values is not None and not isinstance(values, dict):
            raise fields.error(f"{name} is {values!r}, an object is needed")
        if values:
            _refuse_by_layer(fields, name, values)
            return read_rope_values(
                fields, values, theta=fields.values["rope_theta"], context_length=context_length
            )
    return Rope(theta=fields.real("rope_theta"), scaling=None)


def _refuse_by_layer(fields: JsonFields, name: str, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            raise fields.error(
                f"{name} has an entry for {key!r}: rotary positions by layer type are not supported"
            )


def read_rope_values(
    fields: JsonFields, values: dict[str, Any], *, theta: object, context_length: int
) -> Rope:
    """Read one object of rotary positions; `theta` stands for one that is not there.

    Raises:
        BadCheckpoint: A field is missing or of the wrong kind, or its kind is not supported.
    """
    defaults = {"rope_theta": theta, "original_max_position_embeddings": context_length}
    rope = JsonFields(fields.path, defaults | values)
    if values.get("partial_rotary_factor") not in (None, 1):
        raise fields.error("partial_rotary_factor: only whole heads can be rotated")
    base = rope.real("rope_theta")
    kind = values.get("rope_type", values.get("type", "default"))
    if kind == "default":
        return Rope(theta=base, scaling=None)
    if kind == "linear":
        return Rope(theta=base, scaling=LinearRope(factor=rope.real("factor")))
    if kind == "llama3":
        return Rope(theta=base, scaling=_llama3_rope(rope))
    raise fields.error(f"rope_type is {kind!r}, supported are default, linear and llama3")


def _llama3_rope(rope: JsonFields) -> Llama3Rope:
    return Llama3Rope(
        factor=rope.real("factor"),
        low_freq_factor=rope.real("low_freq_factor"),
        high_freq_factor=rope.real("high_freq_factor"),
        original_context_length=rope.whole("original_max_position_embeddings"),
    )
