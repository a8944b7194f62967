from lanehost.rank_group.image_interface import ImageReason
from ranks.wire.image_messages import ImageFault


def test_reasons_are_the_words_of_the_wire():
    assert {reason.value for reason in ImageReason} == {fault.value for fault in ImageFault}
