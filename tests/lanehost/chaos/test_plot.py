import xml.etree.ElementTree as ET

from lanehost.chaos.plot import charts, plot_chaos
from tests.support.chaos_seen import seen_of


def test_the_charts_hold_events_recoveries_and_memory():
    found = {title: points for title, _, points in charts(seen_of())}
    events, recoveries, memory = found.values()
    assert dict(events) == {
        float(s): {1: 1.0, 9: 1.0, 14: 1.0, 15: 1.0, 19: 1.0}.get(s, 0.0) for s in range(20)
    }
    assert recoveries == [(1.0, 5.5)]
    assert memory == [(1.0, 100.0), (3.0, 100.0)]


def test_a_picture_is_svg(tmp_path):
    plot_chaos(seen_of(), tmp_path / "out.svg")
    assert ET.parse(tmp_path / "out.svg").getroot().tag.endswith("svg")
