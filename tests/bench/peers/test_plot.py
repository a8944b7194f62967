"""Only what was measured is drawn."""

from bench.peers.plot import bars_of, plot_speeds

ROUNDS = [{"lanehost": {"prefill": 4.0}, "other": {"prefill": 1.0}}]


def test_a_side_that_was_not_measured_has_no_bar():
    assert bars_of(ROUNDS, "prefill", ["lanehost", "absent", "other"]) == [
        (4.0, "lanehost"),
        (1.0, "other"),
    ]


def test_a_picture_has_a_chart_for_each_column_that_was_measured(tmp_path):
    path = tmp_path / "speed.svg"

    plot_speeds(ROUNDS, ["prefill", "decode 1"], ["lanehost", "other"], path)

    text = path.read_text(encoding="utf-8")
    assert "prefill: tokens per second" in text
    assert "other" in text
    assert "decode 1" not in text
