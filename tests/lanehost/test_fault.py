from structlog.testing import capture_logs

from lanehost.errors import InternalFault
from lanehost.fault import record_fault

SECRET = "the text of a prompt"


def _raise(text: str) -> None:
    try:
        {}[text]
    except KeyError as error:
        raise ValueError(text) from error


def _caught() -> ValueError:
    try:
        _raise(SECRET)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_log_has_the_trace_under_the_record_id() -> None:
    with capture_logs() as logs:
        fault = record_fault(_caught())
    assert [entry["record_id"] for entry in logs] == [fault.record_id]
    assert "in _raise" in logs[0]["trace"]
    assert logs[0]["trace"].endswith("ValueError")
    assert "KeyError" in logs[0]["trace"]


def test_no_text_of_a_prompt_reaches_the_log() -> None:
    with capture_logs() as logs:
        record_fault(_caught())
    assert SECRET not in repr(logs)


def test_record_ids_differ() -> None:
    with capture_logs():
        assert record_fault(_caught()).record_id != record_fault(_caught()).record_id


def test_a_fault_that_has_a_record_keeps_it() -> None:
    with capture_logs() as logs:
        assert record_fault(InternalFault("r1")).record_id == "r1"
    assert logs == []
