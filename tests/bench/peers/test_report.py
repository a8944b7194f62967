"""Tables tell ratios beside the goals, and name what is absent."""

from bench.peers.outputs import Numbers
from bench.peers.report import closeness_lines, first_token_lines, speed_lines
from bench.peers.shape import Shape

COLUMNS = Shape().columns


def speeds(value):
    return dict.fromkeys(COLUMNS, value)


ROUNDS = [
    {"lanehost": speeds(300.0), "llama.cpp Q4_0": speeds(100.0), "llama.cpp Q8_0": speeds(50.0)},
    {"lanehost": speeds(200.0), "llama.cpp Q4_0": speeds(100.0), "llama.cpp Q8_0": speeds(40.0)},
]
SIDES = {
    "lanehost": "ours",
    "llama.cpp Q4_0": "head Q6_K",
    "llama.cpp Q8_0": "head Q8_0",
    "ctranslate2 int8": "absent: pip install ctranslate2",
}


def row(lines, start, number=0):
    return [line for line in lines if line.startswith(start)][number]


def make_lines():
    return speed_lines(ROUNDS, COLUMNS, SIDES, {"lanehost": 250_000_000}, "lanehost")


def test_medians_ratios_and_goals_stand_below_each_other():
    lines = make_lines()

    assert row(lines, "lanehost").split() == ["lanehost", *["250.0"] * 5, "250"]
    assert row(lines, "llama.cpp Q4_0", 1).count("2.50 (2.00 to 3.00)") == 5
    assert row(lines, "llama.cpp's best").count("2.50 (2.00 to 3.00)") == 5
    assert row(lines, "reached").split() == ["reached", "goal", "must", "-", "-", "-"]
    assert row(lines, "must").split() == ["must", "1.7", "2.0", "3.0", "2.8", "2.6"]


def test_an_absent_side_has_dashes_and_its_reason():
    lines = make_lines()

    assert row(lines, "ctranslate2").split() == ["ctranslate2", "int8", *["-"] * 6]
    assert row(lines, "ctranslate2", 1).split() == ["ctranslate2", "int8", *["-"] * 5]
    assert "  ctranslate2 int8: absent: pip install ctranslate2" in lines


def test_without_any_llama_nothing_is_reached():
    lines = speed_lines(ROUNDS, COLUMNS, {"lanehost": "ours"}, {}, "lanehost")

    assert row(lines, "llama.cpp's best").split()[2:] == ["-"] * 5
    assert row(lines, "reached").split()[1:] == ["-"] * 5


def test_the_wait_for_a_first_token_is_told_with_its_ratio():
    rounds = [
        {"ours": 1.0, "theirs": 4.0},
        {"ours": 2.0, "theirs": 4.0},
        {"ours": 3.0, "theirs": 3.0},
    ]

    lines = first_token_lines(
        rounds, {"ours": 5_000_000}, ours="ours", theirs="theirs", num_clients=16
    )

    assert row(lines, "ours").split() == ["ours", "2.00", "5"]
    assert row(lines, "theirs").split() == ["theirs", "4.00", "-"]
    assert lines[-1] == "ratio ours ÷ theirs: 0.50 (0.25 to 1.00); goal: at most 0.4"


def test_the_numbers_of_each_side_stand_beside_the_goal():
    numbers = Numbers(
        mean_kl=0.0024,
        median_kl=0.0014,
        p99_kl=0.013,
        same_top_share=0.973,
        perplexity=7.696,
        reference_perplexity=7.67,
    )

    lines = closeness_lines("a.txt", {"lanehost": numbers}, {"llama.cpp": "absent"})

    assert row(lines, "lanehost").split()[1:] == [
        "0.002400", "0.001400", "0.013000", "97.30%", "7.696", "7.670",
    ]  # fmt: skip
    assert "  llama.cpp: absent" in lines
    assert lines[-1] == "goal: mean KL at most 0.0034, same top token at least 97%"
