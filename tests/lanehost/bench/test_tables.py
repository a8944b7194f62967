from lanehost.bench.tables import align, define, milliseconds


def test_columns_line_up_the_first_to_the_left():
    assert align([["", "p50", "p9"], ["TTFT", "1.0", "200.5"]]) == [
        "      p50     p9",
        "TTFT  1.0  200.5",
    ]


def test_a_definition_keeps_to_the_width_of_a_terminal_and_loses_no_word():
    meaning = " ".join(f"word{number}" for number in range(60))
    lines = define({"ITL": meaning})
    assert max(map(len, lines)) <= 96
    assert " ".join(lines).split()[4:] == ["ITL:", *meaning.split()]


def test_a_time_that_is_not_there_is_a_dash():
    assert (milliseconds(0.0125), milliseconds(None)) == ("12.5", "-")
