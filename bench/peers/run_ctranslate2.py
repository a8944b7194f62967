"""Time ctranslate2 with int8 weights: one line of JSON, column → tokens per second.

    python run_ctranslate2.py --model DIR --lanes 1 4 8 16 ...

It has no call for one step, so decode is the difference of two replies behind one prompt: of
`steps + 1` tokens and of one. The prompt is given as static, which it keeps computed, so that
neither of the two computes it. A program of its own: it must not need lanehost.
"""

import argparse
import json
import random
import time
from pathlib import Path

import ctranslate2


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
    generator = ctranslate2.Generator(
        args.model, device="cpu", compute_type="int8", inter_threads=1, intra_threads=args.threads
    )
    words = json.loads((Path(args.model) / "vocabulary.json").read_text(encoding="utf-8"))
    usual = words[len(words) // 8 : -len(words) // 8]
    found = {"prefill": prefill_speed(generator, usual, args.prompt_tokens, args.prefills)}
    prompt = random.choices(usual, k=args.prompt_tokens - 1)  # noqa: S311 - no secrets
    for num_lanes in args.lanes:
        lanes = [[random.choice(usual)] for _ in range(num_lanes)]  # noqa: S311 - no secrets
        reply(generator, lanes, prompt, 1)  # now the prompt is computed
        short_s = min(reply(generator, lanes, prompt, 1) for _ in range(2))
        long_s = reply(generator, lanes, prompt, args.steps + 1)
        found[f"decode {num_lanes}"] = num_lanes * args.steps / (long_s - short_s)
    print(json.dumps(found), flush=True)


def prefill_speed(
    generator: ctranslate2.Generator, words: list[str], num_tokens: int, num_prefills: int
) -> float:
    """Run prompts, each a new one, after one that does not count; tokens per second."""
    prompts = [random.choices(words, k=num_tokens) for _ in range(num_prefills + 1)]  # noqa: S311
    took_s = [reply(generator, [prompt], None, 1) for prompt in prompts]
    return num_prefills * num_tokens / sum(took_s[1:])


def reply(
    generator: ctranslate2.Generator,
    lanes: list[list[str]],
    static: list[str] | None,
    num_tokens: int,
) -> float:
    """Let all lanes reply so many tokens; seconds.

    Raises:
        RuntimeError: A reply was shorter.
    """
    began_s = time.perf_counter()
    found = generator.generate_batch(
        lanes,
        max_length=num_tokens,
        min_length=num_tokens,
        static_prompt=static,
        include_prompt_in_result=False,
        sampling_topk=1,
    )
    took_s = time.perf_counter() - began_s
    if any(len(one.sequences_ids[0]) != num_tokens for one in found):
        raise RuntimeError(f"a reply has not the {num_tokens} tokens that were asked for")
    return took_s


if __name__ == "__main__":
    main()
