"""The eyes of a Hugging Face checkpoint: of config.json, and of its image processor's settings.

Laws: as in `ranks.weights.hf_config`. How a pixel becomes a number belongs to the model: it is
read here, and is part of the digest.
"""

from pathlib import Path
from typing import Any

from ranks.weights.json_fields import JsonFields, read_json
from ranks.weights.model_config import VisionConfig

_VISION: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
_PROCESSOR: dict[str, Any] = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "rescale_factor": 1 / 255,
    "do_rescale": True,
    "do_normalize": True,
}
_CHANNELS = 3
_TOWERS = ("siglip_vision_model",)


def read_vision_config(config: JsonFields) -> VisionConfig:
    """Read what config.json says of the eyes, and the processor's file beside it.

    Raises:
        BadCheckpoint: An option is not supported, or a field is of the wrong kind.
    """
    vision = config.part("vision_config", _VISION)
    for name, built in (
        ("model_type", _TOWERS),
        ("hidden_act", ("gelu_pytorch_tanh",)),
        ("num_channels", (_CHANNELS,)),
    ):
        value = vision.values.get(name, built[0])
        if value not in built:
            raise vision.error(f"vision_config: {name} is {value!r}, supported is {built[0]!r}")
    processor = _read_processor(config.path.parent)
    return VisionConfig(
        hidden_size=vision.whole("hidden_size"),
        intermediate_size=vision.whole("intermediate_size"),
        num_layers=vision.whole("num_hidden_layers"),
        num_heads=vision.whole("num_attention_heads"),
        norm_eps=vision.real("layer_norm_eps"),
        image_size=vision.whole("image_size"),
        patch_size=vision.whole("patch_size"),
        tokens_per_side=_tokens_per_side(config),
        image_token_id=config.whole("image_token_index"),
        rescale=processor.real("rescale_factor") if processor.truth("do_rescale") else 1.0,
        mean=_channels(processor, "image_mean", 0.0),
        std=_channels(processor, "image_std", 1.0),
    )


def _tokens_per_side(config: JsonFields) -> int:
    count = config.whole("mm_tokens_per_image")
    side = int(max(0, count) ** 0.5)
    if side * side != count:
        raise config.error(f"mm_tokens_per_image is {count}, a square is needed")
    return side


def _read_processor(folder: Path) -> JsonFields:
    """The settings of the image processor: in a file of their own, or within another's."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return JsonFields(path, _PROCESSOR | read_json(path))
    path = folder / "processor_config.json"
    values = read_json(path).get("image_processor") if path.is_file() else None
    return JsonFields(path, _PROCESSOR | values if isinstance(values, dict) else _PROCESSOR)


def _channels(processor: JsonFields, name: str, unused: float) -> tuple[float, ...]:
    if not processor.truth("do_normalize"):
        return (unused,) * _CHANNELS
    values = processor.values[name]
    if not isinstance(values, list):
        raise processor.error(f"{name} is {values!r}, a list is needed")
    numbers = JsonFields(processor.path, {f"{name}[{n}]": one for n, one in enumerate(values)})
    return tuple(numbers.real(key) for key in numbers.values)
