"""What the disk tier asks of the master's own part of the folder: manifests, and what is aside.

Law: works are done one after the other, in the order in which they were asked for; each has one
outcome.
"""

from dataclasses import dataclass
from typing import Protocol

from lanehost.disk_cache.interface import FileName, FileReason
from lanehost.disk_cache.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteManifest:
    """Write a manifest, in the place of an older one of its name."""

    order_id: int
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveManifest:
    """Remove a manifest; none there is fine."""

    order_id: int
    name: FileName


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyAside:
    """Remove all that was moved aside on this host."""

    order_id: int


ShelfWork = WriteManifest | RemoveManifest | EmptyAside


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfOutcome:
    """What became of a work.

    Attributes:
        order_id: Of the work.
        reason: Why it is not done; None: it is.
        message: The same in words.
        is_disowned: Whether the folder is another server's by now; it stays so.
    """

    order_id: int
    reason: FileReason | None = None
    message: str = ""
    is_disowned: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it was done."""
        return self.reason is None


class Shelf(Protocol):
    """Does works beside the event loop; outcomes are told from the loop, never from `start`."""

    def start(self, work: ShelfWork) -> None:
        """Take a work; returns at once."""
        ...
