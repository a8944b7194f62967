import xml.etree.ElementTree as ET
from itertools import pairwise

from lanehost.bench.load import LongRound
from lanehost.bench.plot import check_can_plot, plot_run, shares, token_rate
from lanehost.bench.scenarios import Served
from tests.support.bench_client import reply

REPLIES = (reply(0.0, [0.5, 1.0, 2.5]), reply(0.25, [0.75, 2.0]))


def texts(path):
    return {one.text for one in ET.parse(path).iter() if one.text and one.text.strip()}


def test_a_run_is_drawn_as_an_svg_of_four_charts(tmp_path):
    check_can_plot()
    path = tmp_path / "run.svg"
    plot_run(Served(replies=REPLIES), path)
    assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert texts(path) >= {"TTFT", "ITL", "Latency", "Tokens per second"}


def test_waits_before_and_during_a_long_prompt_are_two_lines_of_one_chart(tmp_path):
    one = LongRound(running=(reply(0.0, [1.0, 2.0, 3.5, 6.0]),), long=reply(3.0, [5.0]))
    path = tmp_path / "long.svg"
    plot_run(Served(replies=one.running, rounds=(one,)), path)
    assert texts(path) >= {"before the long prompt", "during it"}


def test_a_chart_with_nothing_to_draw_is_left_out(tmp_path):
    path = tmp_path / "few.svg"
    plot_run(Served(replies=(reply(0.0, [0.5]),)), path)
    assert "ITL" not in texts(path)


def test_shares_rise_to_all_and_a_long_list_becomes_few_points():
    points = shares([value / 1000 for value in range(10_000, 0, -1)])
    assert points[-1] == (10_000.0, 100.0)
    assert len(points) < 500
    assert all(before <= after for before, after in pairwise(points))


def test_tokens_are_counted_by_the_second_that_they_came_in():
    assert token_rate(REPLIES) == [(0.0, 2.0), (1.0, 1.0), (2.0, 2.0)]
    assert token_rate([]) == []
