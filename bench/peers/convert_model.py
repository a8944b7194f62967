"""Make what Python peers load from a GGUF file; run by the interpreter that has them.

    python convert_model.py --model FILE.gguf --folder DIR [--ctranslate2 DIR]

Writes the weights, expanded to float32, as a Hugging Face folder, and from it what ctranslate2
loads, with int8 weights. A program of its own: it must not need lanehost.
"""

import argparse
from pathlib import Path

import torch
import transformers


def main() -> None:
    """Write one folder, or both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ctranslate2", type=Path)
    args = parser.parse_args()
    if not (args.folder / "config.json").exists():
        source = {"gguf_file": args.model.name}
        model = transformers.AutoModelForCausalLM.from_pretrained(
            args.model.parent, dtype=torch.float32, **source
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model.parent, **source)
        tokenizer.save_pretrained(args.folder)
        # The weights are plain float32 now, which transformers would not believe.
        model.hf_quantizer = None
        model.config.quantization_config = None
        model.save_pretrained(args.folder)
    if args.ctranslate2 is not None:
        # Late: only some have it.
        from ctranslate2.converters import TransformersConverter  # noqa: PLC0415

        converter = TransformersConverter(str(args.folder))
        converter.convert(str(args.ctranslate2), quantization="int8", force=True)


if __name__ == "__main__":
    main()
