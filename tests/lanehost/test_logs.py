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


def test_debug_events_are_not_written(capsys):
    set_up_logs(is_json=True)
    structlog.get_logger().debug("step_planned")
    assert capsys.readouterr().err == ""


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
