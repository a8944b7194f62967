"""Reference replies of real models, and the one exception to equality.

Files of `tests/data` such as `smollm2_greedy.jsonl` hold prompt ids, greedy ids and the margins
(the difference of the two highest logits) of a float32 reference. A token may differ only
where the reference itself is at a near tie.
"""

import json
from dataclasses import dataclass
from pathlib import Path

NEAR_TIE = 1e-3
_DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Case:
    name: str
    prompt_ids: list[int]
    greedy_ids: list[int]
    margins: list[float]


def reference_cases(name: str = "smollm2_greedy.jsonl") -> list[Case]:
    records = map(json.loads, (_DATA / name).read_text().splitlines())
    return [Case(r["name"], r["prompt_ids"], r["greedy_ids"], r["margins"]) for r in records]


def near_ties_used(case: Case, token_ids: list[int]) -> int:
    """Compare a reply with its case; return 1 if it left the reference at a near tie.

    After such a token the two replies are different texts, so nothing more is compared.
    """
    assert len(token_ids) == len(case.greedy_ids), case.name
    for position, (got, expected) in enumerate(zip(token_ids, case.greedy_ids, strict=True)):
        if got != expected:
            margin = case.margins[position]
            assert margin < NEAR_TIE, (
                f"{case.name}: token {position} is {got}, reference {expected}, margin {margin}"
            )
            return 1
    return 0
