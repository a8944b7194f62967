import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from lanehost.bench.quality import (
    DEFINITIONS,
    OWN_TEXT,
    Quality,
    QualityBench,
    cut_windows,
    measure_quality,
    measure_windows,
    report_lines,
    report_object,
    summarise,
)
from lanehost.embedded import embedded_model_path
from lanehost.errors import StartupFailed
from tests.support.processes import is_alive
from tests.support.quality_program import EXIT_BY_ITSELF, REASON, quality_command

BENCH = QualityBench(
    model_path=Path("model.gguf"),
    dtype="auto",
    weights="int8",
    device="cpu",
    num_threads=2,
    window=8,
)
WINDOWS = [list(range(8)), list(range(8, 16)), list(range(16, 24))]
FOUND = Quality(
    num_windows=2,
    num_positions=6,
    mean_kl=0.002,
    median_kl=0.001,
    p99_kl=0.01,
    most_kl=0.02,
    same_top_share=0.975,
    reference_perplexity=7.67,
    served_perplexity=7.7,
)


def measure(behaviour, heard=None):
    return measure_windows(
        BENCH,
        WINDOWS,
        on_window=lambda *told: heard.append(told) if heard is not None else None,
        command=quality_command(behaviour),
    )


def test_windows_follow_one_another_and_what_is_left_is_dropped():
    assert cut_windows(list(range(11)), 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cut_windows(list(range(8)), 8) == [list(range(8))]


def test_a_text_that_is_too_short_is_refused_with_both_numbers():
    with pytest.raises(StartupFailed, match="the text has 7 tokens, a window has 8"):
        cut_windows(list(range(7)), 8)


def test_the_figures_are_over_the_positions_of_all_windows():
    lines = [
        {"kl": [0.0, 0.0, 0.1], "num_same_top": 3, "reference_nll": 3.0, "served_nll": 3.5},
        {"kl": [0.3], "num_same_top": 0, "reference_nll": 1.0, "served_nll": 1.5},
    ]
    found = summarise(lines)
    assert (found.num_windows, found.num_positions) == (2, 4)
    assert found.mean_kl == pytest.approx(0.1)
    assert (found.median_kl, found.p99_kl, found.most_kl) == (0.0, 0.3, 0.3)
    assert found.same_top_share == 0.75
    assert found.reference_perplexity == pytest.approx(math.e)
    assert found.served_perplexity == pytest.approx(math.exp(1.25))


def test_every_window_is_told_as_it_is_done():
    heard = []
    lines = measure("ok", heard)
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert [len(line["kl"]) for line in lines] == [3, 3, 3]


def test_what_measures_is_told_the_model_and_how_it_is_served():
    argv = measure("ok")[0]["argv"]
    path = str(Path("model.gguf").absolute())
    how = ["--dtype", "auto", "--weights", "int8", "--device", "cpu", "--threads", "2"]
    assert argv == ["--model", path, *how]


def test_what_does_not_fit_together_is_refused_before_anything_runs():
    with pytest.raises(StartupFailed, match="--dtype is 'float32', with --weights int8 allowed"):
        replace(BENCH, dtype="float32")


def test_what_cannot_be_measured_is_refused_with_its_reason():
    with pytest.raises(StartupFailed, match=REASON):
        measure("refuse")


@pytest.mark.parametrize(("behaviour", "done"), [("exit-at-once", 0), ("exit-in-mid-word", 1)])
def test_a_program_that_ends_early_is_told_by_its_exit_code(behaviour, done):
    told = f"ended after {done} of 3 windows, exit code {EXIT_BY_ITSELF}"
    with pytest.raises(StartupFailed, match=told):
        measure(behaviour)


def test_no_process_is_left_when_the_measurement_is_broken_off(tmp_path):
    def stop(done, count):
        raise KeyboardInterrupt

    behaviour = f"stay:{tmp_path / 'pid'}"
    with pytest.raises(KeyboardInterrupt):
        measure_windows(BENCH, WINDOWS, on_window=stop, command=quality_command(behaviour))
    assert not is_alive(int((tmp_path / "pid").read_text()))


@pytest.mark.model
def test_the_text_that_comes_along_has_some_thousand_tokens():
    heard = []
    bench = QualityBench(
        model_path=embedded_model_path(),
        dtype="auto",
        weights="auto",
        device="auto",
        num_threads=None,
        window=512,
    )
    found = measure_quality(
        bench,
        OWN_TEXT.read_text(encoding="utf-8"),
        on_window=lambda *told: heard.append(told),
        command=quality_command("ok"),
    )
    assert found.num_windows == len(heard) == 8
    assert found.num_positions == 8 * 255


def test_every_figure_is_told_and_every_word_defined():
    text = "\n".join(report_lines(BENCH, FOUND, "model.gguf"))
    for value in ("0.002000", "0.001000", "0.010000", "97.50%", "7.7000", "7.6700"):
        assert value in text
    assert all(f"  {word}: " in text for word in DEFINITIONS)


def test_the_object_is_json_and_names_no_folder():
    told = json.loads(json.dumps(report_object(BENCH, FOUND, "model.gguf")))
    assert told["bench"]["model_path"] == "model.gguf"
    assert told["figures"]["mean_kl"] == 0.002
