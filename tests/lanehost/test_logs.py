import json

import pytest
import structlog

from lanehost.logs import set_up_logs


@pytest.fixture(autouse=True)
def _default_logs_after():
    yield
    structlog.reset_defaults()


def test_json_lines_carry_event_level_time_and_fields(capsys):
    set_up_logs(is_json=True)
    structlog.get_logger().info("job_ended", job_id="j")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["job_id"]) == ("job_ended", "info", "j")
    assert line["timestamp"].endswith("Z")


def test_text_lines_are_for_people_and_go_to_standard_error(capsys):
    set_up_logs(is_json=False)
    structlog.get_logger().info("job_ended", job_id="j")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "job_ended" in captured.err


@pytest.mark.parametrize(("is_verbose", "is_seen"), [(True, True), (False, False)])
def test_debug_events_are_written_only_when_asked_for(capsys, is_verbose, is_seen):
    set_up_logs(is_json=True, is_verbose=is_verbose)
    structlog.get_logger().debug("lane_seated")
    assert ("lane_seated" in capsys.readouterr().err) is is_seen


def fail_with_a_local():
    secret_prompt = "hidden words"
    raise ValueError(len(secret_prompt))


@pytest.mark.parametrize("is_json", [True, False])
def test_a_trace_never_prints_local_variables(capsys, is_json):
    set_up_logs(is_json=is_json)
    try:
        fail_with_a_local()
    except ValueError:
        structlog.get_logger().exception("failed")
    written = capsys.readouterr().err
    assert "fail_with_a_local" in written
    assert written.count("hidden words") == written.count('secret_prompt = "hidden words"')
