"""How many prompts may share a step: fewer after a step that the ranks could not run.

Law: the limit is between 1 and what the operator allows. It halves what was too much, and
rises by one after many good passes at the limit, so what failed once is not tried at every
turn.
"""

_PASSES_TO_RISE = 32


class PassLimit:
    """Owned by the engine loop."""

    def __init__(self, most: int) -> None:
        """Begin with the most that the operator allows."""
        self.num_prompts = most
        self._most = most
        self._num_good = 0
        self._before = most

    def __repr__(self) -> str:
        return f"<PassLimit {self.num_prompts}>"

    def note_failed(self, num_prompts: int) -> None:
        """Learn that a step of `num_prompts` prompts could not be run."""
        if num_prompts > 1:
            self._before = self.num_prompts
            self.num_prompts = min(self.num_prompts, num_prompts // 2)
            self._num_good = 0

    def note_failed_alone(self) -> None:
        """Learn that one failed by itself: there was room, and the pass failed because of it."""
        self.num_prompts = max(self.num_prompts, self._before)

    def note_run(self, num_prompts: int) -> None:
        """Learn that a step of `num_prompts` prompts has run."""
        if num_prompts < self.num_prompts or self.num_prompts == self._most:
            return
        self._num_good += 1
        if self._num_good >= _PASSES_TO_RISE:
            self.num_prompts += 1
            self._num_good = 0
