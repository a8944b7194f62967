import pytest

from lanehost.door.retry import retry_after_s
from lanehost.errors import Cancelled, Draining, Overloaded, RankGroupLost, Starting


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Overloaded("x", retry_after_s=2.5), 2.5),
        (RankGroupLost("x", epoch=1, rank=None), 1.0),
        (Starting("x"), 1.0),
        (Draining("x"), 1.0),
        (Cancelled("x"), None),
        (ValueError("x"), None),
    ],
)
def test_who_may_come_back_is_told_when(error: Exception, seconds: float | None) -> None:
    assert retry_after_s(error) == seconds
