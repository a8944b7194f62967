"""Time transformers in float32: one line of JSON, column → tokens per second.

    python run_transformers.py --model DIR --lanes 1 4 8 16 ...

The forward passes that `generate` makes, without its own bookkeeping: the prompt once, its
cache repeated for each lane, then a greedy token for every lane a step. A program of its own:
it must not need lanehost.
"""

import argparse
import json
import time

import torch
import transformers


def main() -> None:
    """Run all columns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--lanes", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--prefills", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.eval()
    prompt = torch.randint(100, model.config.vocab_size - 100, (1, args.prompt_tokens))
    with torch.inference_mode():
        found = {"prefill": prefill_speed(model, prompt, args.prefills)}
        for num_lanes in args.lanes:
            found[f"decode {num_lanes}"] = decode_speed(model, prompt, num_lanes, args.steps)
    print(json.dumps(found), flush=True)


def prefill_speed(
    model: transformers.PreTrainedModel, prompt: torch.Tensor, num_prefills: int
) -> float:
    """Run the prompt some times after one that does not count; tokens per second."""
    model(prompt, use_cache=True, logits_to_keep=1)
    began_s = time.perf_counter()
    for _ in range(num_prefills):
        model(prompt, use_cache=True, logits_to_keep=1)
    return num_prefills * prompt.shape[1] / (time.perf_counter() - began_s)


def decode_speed(
    model: transformers.PreTrainedModel, prompt: torch.Tensor, num_lanes: int, num_steps: int
) -> float:
    """Decode in all lanes; the first step does not count. Tokens per second."""
    filled = model(prompt, use_cache=True, logits_to_keep=1)
    cache = filled.past_key_values
    cache.batch_repeat_interleave(num_lanes)
    ids = filled.logits[:, -1].argmax(-1, keepdim=True).repeat(num_lanes, 1)
    began_s = 0.0
    for step in range(num_steps + 1):
        if step == 1:
            began_s = time.perf_counter()
        logits = model(ids, past_key_values=cache, use_cache=True).logits
        ids = logits[:, -1].argmax(-1, keepdim=True)
    return num_lanes * num_steps / (time.perf_counter() - began_s)


if __name__ == "__main__":
    main()
