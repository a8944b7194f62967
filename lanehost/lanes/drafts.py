"""Guess what a sequence says next from what it has said before: prompt look-up drafts.

If the last few tokens occurred earlier, what followed them then may follow again
(prompt lookup decoding, A. Saxena, 2023). A guess is run in one step with the token
before it, and kept only as far as it equals what the target draws anyway at that keyed
position: a drafted reply is the plain one, greedy and seeded.

The depth follows measured acceptance: doubled when a whole guess was right, halved when
none of it was, and after misses in a row the sequence is left alone for a while. Pure:
decided from tokens alone, so a replay decides the same.
"""

_LONGEST_MATCH = 4
_SHORTEST_MATCH = 2
_FIRST_DEPTH = 4
_MAX_MISSES = 2
_REST_TOKENS = 24


class Drafter:
    """The drafts of one sequence. Owned by the engine loop."""

    def __init__(self, token_ids: tuple[int, ...], *, max_depth: int) -> None:
        """Learn the prompt.

        Args:
            token_ids: The tokens so far.
            max_depth: The most tokens to guess at once; 0 never guesses.
        """
        self._token_ids: list[int] = []
        # Where each run of tokens was last followed by something.
        self._next_at: dict[tuple[int, ...], int] = {}
        self._max_depth = max_depth
        self._depth = min(_FIRST_DEPTH, max_depth)
        self._num_misses = 0
        self._rests_until = 0
        for token_id in token_ids:
            self.append(token_id)

    def __repr__(self) -> str:
        return f"<Drafter depth {self._depth}, {len(self._token_ids)} tokens>"

    def append(self, token_id: int) -> None:
        """Learn a token that was drawn."""
        end = len(self._token_ids)
        for length in range(_SHORTEST_MATCH, min(_LONGEST_MATCH, end) + 1):
            self._next_at[tuple(self._token_ids[end - length :])] = end
        self._token_ids.append(token_id)

    def propose(self, limit: int) -> tuple[int, ...]:
        """Return at most `limit` tokens that may come next; none when nothing matches.

        >>> Drafter((1, 2, 3, 4, 9, 1, 2, 3), max_depth=8).propose(8)
        (4, 9, 1, 2)
        """
        end = len(self._token_ids)
        depth = min(self._depth, limit)
        if depth < 1 or end < self._rests_until:
            return ()
        for length in range(min(_LONGEST_MATCH, end), _SHORTEST_MATCH - 1, -1):
            start = self._next_at.get(tuple(self._token_ids[end - length :]))
            if start is not None:
                return tuple(self._token_ids[start : start + depth])
        return ()

    def judge(self, num_proposed: int, num_accepted: int) -> None:
        """Learn how a guess went."""
        if num_accepted == num_proposed:
            self._depth = min(self._depth * 2, self._max_depth)
            self._num_misses = 0
        elif num_accepted == 0:
            self._depth = max(self._depth // 2, 1)
            self._num_misses += 1
        else:
            self._num_misses = 0
        if self._num_misses >= _MAX_MISSES:
            self._num_misses = 0
            self._rests_until = len(self._token_ids) + _REST_TOKENS
