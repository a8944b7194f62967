"""An abort calls what waits, once, and never what was taken back."""

import threading

from ranks.abort import Abort


def test_an_abort_calls_what_waits_once():
    abort, called = Abort(), []
    with abort.calling(lambda: called.append("first")), abort.calling(lambda: called.append("two")):
        abort.set()
        abort.set()
    assert called == ["first", "two"]
    assert abort.is_set


def test_who_comes_after_the_abort_is_called_at_once():
    abort, called = Abort(), []
    abort.set()
    with abort.calling(lambda: called.append(1)):
        assert called == [1]


def test_what_was_taken_back_is_not_called():
    abort, called = Abort(), []
    with abort.calling(lambda: called.append(1)):
        pass
    abort.set()
    assert called == []


def test_who_takes_back_waits_for_a_call_that_runs():
    abort, entered, go_on, order = Abort(), threading.Event(), threading.Event(), []

    def call():
        entered.set()
        assert go_on.wait(10)
        order.append("called")

    with abort.calling(call):
        setter = threading.Thread(target=abort.set)
        setter.start()
        assert entered.wait(10)
        threading.Timer(0.05, go_on.set).start()
    order.append("taken back")
    setter.join()
    assert order == ["called", "taken back"]


def test_a_wait_says_whether_the_abort_came():
    abort = Abort()
    assert not abort.wait(0.01)
    threading.Timer(0.01, abort.set).start()
    assert abort.wait(10)
