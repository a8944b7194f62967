import json

from lanehost.chaos.report import report_lines, report_object
from tests.support.chaos_seen import RUN, seen_of


def test_people_are_told_the_seed_the_faults_the_times_and_the_verdict():
    text = "\n".join(report_lines(RUN, seen_of()))
    for words in (
        "seed 5; 2 streams over 30 s; lanehost serve --tp 2",
        "faults: 1 kill",
        "requests: 2 sent, 2 complete, 2 equal; 16 tokens",
        "epochs: 1 formed anew",
        "recovery      1  5.500  5.500  5.500",
        "health        1  0.500  0.500  0.500",
        "master  100     10       10        100     11       10",
        "Every law held.",
    ):
        assert words in text


def test_a_law_that_was_broken_is_in_the_verdict():
    seen = seen_of()
    seen.exit_code = 3
    lines = report_lines(RUN, seen)
    assert lines[lines.index("Broken:") + 1] == "  the server exited with 3, not with 0"


def test_machines_are_told_all_in_seconds_from_when_the_load_began():
    told = json.loads(json.dumps(report_object(RUN, seen_of())))
    assert told["faults"] == [
        {"at_s": 9.0, "fault": "kill", "rank": 0, "was_serving": True, "health_s": 0.5}
    ]
    assert told["health"] == [[-0.5, True], [9.5, False], [14.0, True]]
    assert (told["broken_laws"], told["recoveries_s"], told["exit_code"]) == ([], [5.5], 0)
    assert [one["ended_s"] for one in told["endings"]] == [19.0, 19.0]
    assert [one["event"] for one in told["log"]].count("rank_spawned") == 3
