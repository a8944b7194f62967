"""The line against a plain model: lists, counted anew at every step."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lanehost.admission.line import Line
from lanehost.admission.shares import Shares
from lanehost.errors import Overloaded
from lanehost.job import Priority
from lanehost.settings import LineSettings
from tests.support.jobs import make_sequence

SCOPES = ("a", "b", "c")
MAX_WAITING, MAX_TOKENS, MAX_OVERTAKES = 6, 40, 3

# Which of several: taken round.
picks = st.integers(0, 11)


def pick_from(choices, pick):
    return choices[pick % len(choices)]


def tokens_of(sequences):
    return sum(len(sequence.token_ids) for sequence in sequences)


class LineMachine(RuleBasedStateMachine):
    @initialize(weights=st.dictionaries(st.sampled_from(SCOPES[:2]), st.integers(1, 3)))
    def begin(self, weights):
        settings = LineSettings(max_waiting=MAX_WAITING, max_waiting_tokens=MAX_TOKENS)
        self.line = Line(settings, weights, max_overtakes=MAX_OVERTAKES)
        self.weights = weights
        # In order, for each scope and priority.
        self.waiting = {
            (scope, is_background): [] for scope in SCOPES for is_background in (False, True)
        }
        self.promised = dict.fromkeys(SCOPES, 0)
        self.num_joined = self.num_taken = self.num_left = self.num_overtakes = 0
        # Of those that came back: the head that must be gone before they are taken.
        self.gave_way_to = {}
        self.seated = []

    def all_waiting(self, *, scope=None, is_background=None):
        return [
            sequence
            for key, sequences in self.waiting.items()
            if scope in (None, key[0]) and is_background in (None, key[1])
            for sequence in sequences
        ]

    def scopes_with_promises(self):
        return [scope for scope in SCOPES if self.promised[scope]]

    def list_of(self, sequence):
        return self.waiting[sequence.job.scope, sequence.is_background]

    def shares(self, limit, taken):
        """Return the shares that are kept of a limit, with this much taken."""
        shares = Shares(limit, self.weights)
        for scope, amount in taken.items():
            shares.take(scope, amount)
        return shares

    def seen(self):
        return (repr(self.line), self.line.num_tokens, self.line.head())

    @rule(scope=st.sampled_from(SCOPES))
    def promise(self, scope):
        taken = {s: self.promised[s] + len(self.all_waiting(scope=s)) for s in SCOPES}
        may = self.shares(MAX_WAITING, taken).may_take(scope)
        before = self.seen()
        try:
            self.line.promise(scope)
        except Overloaded:
            assert not may
            assert self.seen() == before
        else:
            assert may
            self.promised[scope] += 1
            assert self.line.head() is before[-1]

    @precondition(lambda self: any(self.promised.values()))
    @rule(pick=picks)
    def withdraw(self, pick):
        scope = pick_from(self.scopes_with_promises(), pick)
        self.line.withdraw(scope)
        self.promised[scope] -= 1

    @precondition(lambda self: any(self.promised.values()))
    @rule(pick=picks, num_tokens=st.integers(1, 20), priority=st.sampled_from(Priority))
    def join(self, pick, num_tokens, priority):
        scope = pick_from(self.scopes_with_promises(), pick)
        sequence = make_sequence((1,) * num_tokens, scope=scope, priority=priority)
        may = self.may_wait(scope, num_tokens)
        before = self.seen()[1:]
        self.promised[scope] -= 1
        try:
            self.line.join(sequence)
        except Overloaded:
            assert not may
            assert self.seen()[1:] == before
        else:
            assert may
            self.list_of(sequence).append(sequence)
            self.num_joined += 1

    def may_wait(self, scope, num_tokens):
        taken = {s: tokens_of(self.all_waiting(scope=s)) for s in SCOPES}
        is_alone = not taken[scope] if scope in self.weights else not any(taken.values())
        return is_alone or self.shares(MAX_TOKENS, taken).may_take(scope, num_tokens)

    @precondition(lambda self: self.all_waiting())
    @rule()
    def take_head(self):
        head, was_promoted = self.line.head(), self.line.head().is_promoted
        self.list_of(head).remove(head)
        is_background = head.is_background
        assert self.line.take_head() is head
        is_due = self.num_overtakes >= MAX_OVERTAKES
        assert head.is_promoted == (was_promoted or (is_background and is_due))
        self.num_overtakes = 0 if is_background else self.num_overtakes + 1
        self.num_taken += 1
        self.seated.append(head)
        # But who has been overtaken its most goes first all the same, and gives way no more.
        assert head not in self.gave_way_to or head.is_promoted
        self.note_gone(head)

    @precondition(lambda self: self.all_waiting())
    @rule(pick=picks)
    def leave(self, pick):
        sequence = pick_from(self.all_waiting(), pick)
        assert self.line.leave(sequence.job.job_id) is sequence
        assert self.line.leave(sequence.job.job_id) is None
        self.list_of(sequence).remove(sequence)
        self.num_left += 1
        self.note_gone(sequence)

    def note_gone(self, gone):
        self.gave_way_to = {
            sequence: head
            for sequence, head in self.gave_way_to.items()
            if gone not in (sequence, head)
        }
        if not self.all_waiting(is_background=True):
            self.num_overtakes = 0

    @precondition(lambda self: self.seated)
    @rule(pick=picks, num_generated=st.integers(0, 3))
    def rejoin(self, pick, num_generated):
        sequence = pick_from(self.seated, pick)
        self.seated.remove(sequence)
        sequence.generated_ids += [7] * num_generated
        head = self.line.head()
        self.line.rejoin(sequence)
        self.list_of(sequence).insert(0, sequence)
        self.num_taken -= 1
        if head is None or self.is_first_with(head, sequence):
            assert self.line.head() is sequence
        elif head.is_background <= sequence.is_background:
            assert self.line.head() is head
            self.gave_way_to[sequence] = head

    def is_first_with(self, head, sequence):
        return (head.job.scope, head.is_background) == (sequence.job.scope, sequence.is_background)

    @invariant()
    def n_in_n_out(self):
        num_waiting = len(self.all_waiting())
        assert self.num_joined == self.num_taken + self.num_left + num_waiting
        assert repr(self.line) == (
            f"<Line {num_waiting} jobs, {sum(self.promised.values())} promised>"
        )
        assert len(self.line) == num_waiting

    @invariant()
    def tokens_add_up(self):
        assert self.line.num_tokens == tokens_of(self.all_waiting())

    @invariant()
    def first_come_first_served_within_a_scope_and_priority(self):
        head = self.line.head()
        assert (head is None) == (not self.all_waiting())
        assert head is None or self.list_of(head)[0] is head

    @invariant()
    def the_foreground_is_first_until_it_has_overtaken_its_most(self):
        head = self.line.head()
        background = self.all_waiting(is_background=True)
        if background and self.num_overtakes >= MAX_OVERTAKES:
            assert head.is_background
        elif self.all_waiting(is_background=False):
            assert not head.is_background

    @invariant()
    def the_head_is_stable(self):
        assert self.line.head() is self.line.head()

    @invariant()
    def with_one_scope_it_is_a_plain_queue(self):
        for is_background in (True, False):
            queues = [self.waiting[scope, is_background] for scope in SCOPES]
            heads = [queue[0] for queue in queues if queue]
            head = self.line.head()
            if len(heads) == 1 and head.is_background == is_background:
                assert head is heads[0]


TestLine = LineMachine.TestCase
