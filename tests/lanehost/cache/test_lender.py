from lanehost.cache.lender import NO_LENDER


def test_where_nobody_lends_nothing_comes_back():
    assert not NO_LENDER.is_lending
    assert not NO_LENDER.is_late
    assert not NO_LENDER.recall()
