"""Who holds blocks beside lanes and entries, for a while: works that read or fill them."""

from typing import Protocol


class Lender(Protocol):
    """Has blocks in works, and gives them back early where that harms nobody."""

    @property
    def is_lending(self) -> bool:
        """Whether blocks will soon come back by themselves that cannot be recalled."""
        ...

    @property
    def is_late(self) -> bool:
        """Whether some are not back though it is time: nobody knows when they will be."""
        ...

    def recall(self) -> bool:
        """Give back what can be given back now; says whether that was anything."""
        ...


class NoLender:
    """Implements `Lender`: nobody has any."""

    @property
    def is_lending(self) -> bool:
        """Nothing will come back."""
        return False

    @property
    def is_late(self) -> bool:
        """Nothing is to come back."""
        return False

    def recall(self) -> bool:
        """Nothing comes back."""
        return False


NO_LENDER = NoLender()
