"""Compare lanehost, served over gRPC, with the plain `transformers` generate loop.

Same model (the embedded one, in float32 on both sides), same prompts, same number of new
tokens, same machine, in turn: A B A B. What counts is the ratio of the medians; single
figures of a shared machine do not.

    python bench/against_transformers.py --address 127.0.0.1:50051

needs a running `lanehost serve --dtype float32 --prompt-cache off --max-drafts 0` (both
would help lanehost here: rounds repeat their prompts), the test extra of the project, and
`pip install accelerate`, with which transformers reads GGUF files. The
ratio is tokens per second of lanehost over those of transformers, both counted from the
moment the requests are sent until the last token is there, prompt pass included.
"""

import asyncio
import json
import platform
import statistics
import time
from importlib.metadata import version

import click
import torch
import transformers

from lanehost import AsyncClient
from lanehost.embedded import embedded_model_path

_STREAMS = (1, 16)


def _prompts(count: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(100, 40000, (count, length), generator=generator)
    return [row.tolist() for row in ids]


async def _lanehost(address: str, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    async with AsyncClient(address) as client:
        replies = await asyncio.gather(
            *(
                client.generate(token_ids=prompt, max_tokens=new_tokens, ignore_eos=True)
                for prompt in prompts
            )
        )
    return [list(reply.token_ids) for reply in replies]


def _transformers(
    model: transformers.PreTrainedModel, prompts: list[list[int]], new_tokens: int
) -> list[list[int]]:
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return [row[len(prompt) :].tolist() for row, prompt in zip(out, prompts, strict=True)]


def _load_reference() -> transformers.PreTrainedModel:
    path = embedded_model_path()
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


@click.command(help=__doc__)
@click.option("--address", default="127.0.0.1:50051", show_default=True)
@click.option("--prompt-tokens", default=64, show_default=True)
@click.option("--new-tokens", default=64, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--threads", default=2, show_default=True, help="Threads of transformers.")
def main(address: str, prompt_tokens: int, new_tokens: int, rounds: int, threads: int) -> None:
    """Run both sides in turn and print one JSON object."""
    torch.set_num_threads(threads)
    model = _load_reference()
    results = {}
    for streams in _STREAMS:
        prompts = _prompts(streams, prompt_tokens)
        ours: list[float] = []
        theirs: list[float] = []
        equal = 0
        for _ in range(rounds + 1):  # the first round of both warms up and is not counted
            started_s = time.perf_counter()
            got = asyncio.run(_lanehost(address, prompts, new_tokens))
            ours.append(time.perf_counter() - started_s)
            started_s = time.perf_counter()
            expected = _transformers(model, prompts, new_tokens)
            theirs.append(time.perf_counter() - started_s)
            equal = sum(a == b for a, b in zip(got, expected, strict=True))
        tokens = streams * new_tokens
        pairs = [b / a for a, b in zip(ours[1:], theirs[1:], strict=True)]
        results[f"{streams} streams"] = {
            "lanehost_tokens_per_s": round(tokens / statistics.median(ours[1:]), 1),
            "transformers_tokens_per_s": round(tokens / statistics.median(theirs[1:]), 1),
            "ratio_median": round(statistics.median(pairs), 2),
            "ratio_min": round(min(pairs), 2),
            "ratio_max": round(max(pairs), 2),
            "equal_replies": f"{equal}/{streams}",
        }
        click.echo(f"{streams} streams: {results[f'{streams} streams']}", err=True)
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    click.echo(
        json.dumps(
            {
                "machine": f"{machine}, {threads} threads",
                "torch": torch.__version__,
                "transformers": version("transformers"),
                "prompt_tokens": prompt_tokens,
                "new_tokens": new_tokens,
                "rounds": rounds,
                **results,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
