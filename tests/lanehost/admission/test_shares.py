import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lanehost.admission.shares import Shares

SCOPES = ("a", "b", "c")
STRANGER = "stranger"

limits = st.integers(1, 40)
weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9))


def shares_of(limit, weights):
    shares = Shares(limit, weights)
    return {scope: shares.share_of(scope) for scope in weights}


@pytest.mark.parametrize(
    ("limit", "weights", "expected"),
    [
        (256, {"a": 1, "b": 1}, {"a": 64, "b": 64}),
        (256, {"a": 3, "b": 1}, {"a": 96, "b": 32}),
        (10, {"a": 1}, {"a": 5}),
        (10, {"a": 8, "b": 1, "c": 1}, {"a": 3, "b": 1, "c": 1}),
        # One for each is more than half.
        (4, {"a": 9, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
        (2, {"a": 9, "b": 1}, {"a": 1, "b": 1}),
        (1, {"a": 1}, {"a": 1}),
        # More scopes than the limit has places.
        (2, {"a": 9, "b": 1, "c": 1}, {"a": 1, "b": 0, "c": 0}),
        (1, {"a": 1, "b": 1}, {"a": 0, "b": 0}),
    ],
)
def test_half_of_the_limit_is_kept_in_proportion_to_the_weights(limit, weights, expected):
    assert shares_of(limit, weights) == expected


@given(limit=limits, weights=weights)
def test_every_scope_has_a_share_while_the_limit_has_one_for_each(limit, weights):
    shares = shares_of(limit, weights)
    if weights and len(weights) <= limit:
        assert sum(shares.values()) == max(limit // 2, len(weights))
        assert min(shares.values()) >= 1
    else:
        # Nobody is shut out: half is still anybody's.
        assert sum(shares.values()) == (limit // 2 if weights else 0)


@given(limit=limits, weights=weights)
def test_a_heavier_scope_has_no_smaller_share(limit, weights):
    shares = shares_of(limit, weights)
    by_weight = sorted(weights, key=lambda scope: (weights[scope], shares[scope]))
    assert [shares[scope] for scope in by_weight] == sorted(shares.values())


def test_a_scope_alone_may_take_all_that_is_not_kept_for_others():
    shares = Shares(8, {"a": 1, "b": 1})
    assert shares.most_for("a") == 6
    assert shares.may_take("a", 6)
    assert not shares.may_take("a", 7)


def test_without_weights_the_whole_limit_is_anybodys():
    shares = Shares(3, {})
    shares.take("", 3)
    assert not shares.may_take("")
    shares.give_back("")
    assert shares.may_take("")
    assert not shares.may_take("", 2)


def test_a_scope_that_is_not_known_takes_what_is_anybodys():
    shares = Shares(8, {"a": 1, "b": 1})
    assert shares.most_for(STRANGER) == 4
    shares.take(STRANGER, 4)
    assert not shares.may_take(STRANGER)
    assert shares.may_take("a", 2)


def test_what_was_not_taken_cannot_be_given_back():
    shares = Shares(8, {})
    shares.take("a")
    with pytest.raises(AssertionError):
        shares.give_back("a", 2)
    assert shares.taken_by("a") == 1


def test_a_refusal_gives_the_numbers_of_all_when_the_limit_was_met():
    shares = Shares(4, {"a": 1, "b": 1})
    shares.take("a", 3)
    shares.take("b")
    assert shares.refusal("a", "requests would wait") == "5 requests would wait, limit 4"


def test_a_refusal_gives_the_scopes_own_numbers_when_the_rest_is_kept_for_others():
    shares = Shares(8, {"a": 1, "b": 1})
    shares.take("a", 5)
    assert shares.refusal("a", "requests would wait", 2) == (
        "7 requests would wait for you alone, limit 6 for now: the rest of 8 is kept for others"
    )


class SharesMachine(RuleBasedStateMachine):
    """Shares against a plain dict, for scopes that ask and scopes that do not."""

    @initialize(limit=limits, weights=st.dictionaries(st.sampled_from(SCOPES), st.integers(1, 5)))
    def begin(self, limit, weights):
        self.limit = limit
        self.shares = Shares(limit, weights)
        self.share_of = {scope: self.shares.share_of(scope) for scope in (*SCOPES, STRANGER)}
        self.taken = dict.fromkeys(self.share_of, 0)
        self.all_asked = True

    def may(self, scope, amount):
        """Say by the rule itself, over every scope, whether so much more may be taken."""
        if self.taken[scope] + amount <= self.share_of[scope]:
            return True
        others = [other for other in self.taken if other != scope]
        kept = sum(max(0, self.share_of[other] - self.taken[other]) for other in others)
        return sum(self.taken.values()) + amount + kept <= self.limit

    @rule(scope=st.sampled_from((*SCOPES, STRANGER)), amount=st.integers(1, 6))
    def take_if_allowed(self, scope, amount):
        assert self.shares.may_take(scope, amount) == self.may(scope, amount)
        if self.shares.may_take(scope, amount):
            self.shares.take(scope, amount)
            self.taken[scope] += amount

    @rule(scope=st.sampled_from((*SCOPES, STRANGER)), amount=st.integers(1, 50))
    def take_without_asking(self, scope, amount):
        self.all_asked = self.all_asked and self.may(scope, amount)
        self.shares.take(scope, amount)
        self.taken[scope] += amount

    @precondition(lambda self: any(self.taken.values()))
    @rule(data=st.data())
    def give_back(self, data):
        scope = data.draw(st.sampled_from([scope for scope in self.taken if self.taken[scope]]))
        amount = data.draw(st.integers(1, self.taken[scope]))
        self.shares.give_back(scope, amount)
        self.taken[scope] -= amount

    @invariant()
    def a_scope_below_its_share_may_always_take_one_more(self):
        below = [scope for scope in SCOPES if self.taken[scope] < self.share_of[scope]]
        assert all(self.shares.may_take(scope) for scope in below)

    @invariant()
    def who_asks_first_never_passes_the_limit(self):
        assert not self.all_asked or self.shares.num_taken <= self.limit

    @invariant()
    def counts_are_true(self):
        assert self.shares.num_taken == sum(self.taken.values())
        assert {scope: self.shares.taken_by(scope) for scope in self.taken} == self.taken
        kept = sum(max(0, self.share_of[scope] - self.taken[scope]) for scope in SCOPES)
        assert repr(self.shares) == (
            f"<Shares {sum(self.taken.values())}/{self.limit}, {kept} kept>"
        )


TestShares = SharesMachine.TestCase
