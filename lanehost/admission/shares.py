"""A bound that no scope can take for itself.

Half of the limit is kept for the known scopes, in proportion to their weights; the other
half is anybody's. A scope may take more than its share, as long as what is left still
holds the untouched part of every other share.

Laws: however much others hold, a scope below its share may always take one more; while
everybody asks first, no more is taken than the limit.

Without weights there are no shares: nobody is told from anybody, and the whole limit is
for all. A share is at least 1 while the limit has one for each scope, even where that is
more than half; with more scopes than that some have no share, the lightest first, and
take what is anybody's. So does a scope that is not known.
"""

from collections.abc import Mapping


class Shares:
    """How much of one bound each scope holds.

    It counts and does not enforce: `take` also counts what may pass the bound, and the
    law of the share holds even then.
    """

    def __init__(self, limit: int, weights: Mapping[str, int]) -> None:
        """Begin with nothing taken.

        Args:
            limit: How much all scopes together may take.
            weights: The known scopes; of what is kept, one of weight 2 has twice as much.
        """
        self._limit = limit
        self._shares = _share_out(limit, weights)
        self._taken: dict[str, int] = {}
        self._num_taken = 0
        self._num_kept = sum(self._shares.values())

    def __repr__(self) -> str:
        return f"<Shares {self._num_taken}/{self._limit}, {self._num_kept} kept>"

    @property
    def num_taken(self) -> int:
        """What all scopes hold together."""
        return self._num_taken

    def taken_by(self, scope: str) -> int:
        """Return what the scope holds."""
        return self._taken.get(scope, 0)

    def share_of(self, scope: str) -> int:
        """Return what is kept for the scope alone."""
        return self._shares.get(scope, 0)

    def most_for(self, scope: str) -> int:
        """Return the most that the scope may hold while all others hold what they do."""
        others = self._num_taken - self.taken_by(scope)
        kept_for_others = self._num_kept - self._untouched(scope)
        return max(self.share_of(scope), self._limit - others - kept_for_others)

    def may_take(self, scope: str, amount: int = 1) -> bool:
        """Say whether so much more leaves every other scope the rest of its share."""
        return self.taken_by(scope) + amount <= self.most_for(scope)

    def refusal(self, scope: str, what: str, amount: int = 1) -> str:
        """Say why so much more may not be taken, in the numbers that met the bound.

        Args:
            scope: Who asks.
            what: What would be taken: "requests would wait".
            amount: How much more of it.
        """
        if self._num_taken + amount > self._limit:
            return f"{self._num_taken + amount} {what}, limit {self._limit}"
        have, limit = self.taken_by(scope) + amount, self.most_for(scope)
        return (
            f"{have} {what} for you alone, limit {limit} for now: "
            f"the rest of {self._limit} is kept for others"
        )

    def take(self, scope: str, amount: int = 1) -> None:
        """Count so much more as the scope's; whether it may is for the caller to ask."""
        self._change(scope, amount)

    def give_back(self, scope: str, amount: int = 1) -> None:
        """Count so much less as the scope's."""
        assert amount <= self.taken_by(scope), f"{scope!r} gives back {amount} of {self!r}"
        self._change(scope, -amount)

    def _change(self, scope: str, amount: int) -> None:
        untouched = self._untouched(scope)
        self._taken[scope] = self.taken_by(scope) + amount
        self._num_taken += amount
        self._num_kept += self._untouched(scope) - untouched
        if self._taken[scope] == 0:
            del self._taken[scope]

    def _untouched(self, scope: str) -> int:
        return max(0, self.share_of(scope) - self.taken_by(scope))


def _share_out(limit: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide what is kept, the lightest scope first, so that all is given and each gets one."""
    least = 1 if len(weights) <= limit else 0
    left = max(limit // 2, least * len(weights))
    weight_left = sum(weights.values())
    shares: dict[str, int] = {}
    for scope, weight in sorted(weights.items(), key=lambda item: (item[1], item[0])):
        assert weight > 0, f"the weight of {scope!r} is {weight}"
        shares[scope] = max(least, left * weight // weight_left)
        left -= shares[scope]
        weight_left -= weight
    return shares
