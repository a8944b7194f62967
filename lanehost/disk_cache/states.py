"""The life of an entry's files, as a table.

              STARTED          WRITTEN           LISTED
    WAITING ──────────▶ SAVING ───────▶ LISTING ───────▶ SAVED ◀──────────────┐
                                                          │ ASKED             │ ADOPTED, KEPT
                                                          ▼        CHECKED    │
                                                       CHECKING ──────────▶ ADOPTING
                                        REMOVED           │ MISSED             │ MISSED
                               (gone) ◀───────── LEAVING ◀┴────────────────────┘

Law: an event that the table has not for a state is a bug of ours: it raises, and changes nothing.
"""

from enum import Enum


class FileState(Enum):
    """Where an entry is; one that is gone has no state.

    WAITING for its turn to be written. The ranks write: SAVING. The master writes its manifest:
    LISTING. SAVED, and found by look-ups. The ranks verify: CHECKING, and copy: ADOPTING. LEAVING:
    out of look-ups, while its manifest and then its files are removed.
    """

    WAITING = "waiting"
    SAVING = "saving"
    LISTING = "listing"
    SAVED = "saved"
    CHECKING = "checking"
    ADOPTING = "adopting"
    LEAVING = "leaving"


class FileEvent(Enum):
    """What befalls an entry.

    KEPT: what was asked of it came to nothing, and it is as good as before. MISSED: it is not
    what it should be. FAILED: it could not be written. LOST: the epoch ended under it.
    """

    STARTED = "started"
    WRITTEN = "written"
    LISTED = "listed"
    ASKED = "asked"
    CHECKED = "checked"
    ADOPTED = "adopted"
    KEPT = "kept"
    MISSED = "missed"
    FAILED = "failed"
    EVICTED = "evicted"
    REMOVED = "removed"
    LOST = "lost"


# None: gone.
TRANSITIONS: dict[tuple[FileState, FileEvent], FileState | None] = {
    (FileState.WAITING, FileEvent.STARTED): FileState.SAVING,
    (FileState.WAITING, FileEvent.FAILED): None,
    (FileState.WAITING, FileEvent.LOST): None,
    (FileState.SAVING, FileEvent.WRITTEN): FileState.LISTING,
    (FileState.SAVING, FileEvent.FAILED): None,
    (FileState.SAVING, FileEvent.LOST): None,
    (FileState.LISTING, FileEvent.LISTED): FileState.SAVED,
    (FileState.LISTING, FileEvent.FAILED): FileState.LEAVING,
    (FileState.LISTING, FileEvent.LOST): FileState.LISTING,
    (FileState.SAVED, FileEvent.ASKED): FileState.CHECKING,
    (FileState.SAVED, FileEvent.EVICTED): FileState.LEAVING,
    (FileState.SAVED, FileEvent.LOST): FileState.SAVED,
    (FileState.CHECKING, FileEvent.CHECKED): FileState.ADOPTING,
    (FileState.CHECKING, FileEvent.KEPT): FileState.SAVED,
    (FileState.CHECKING, FileEvent.MISSED): FileState.LEAVING,
    (FileState.CHECKING, FileEvent.LOST): FileState.SAVED,
    (FileState.ADOPTING, FileEvent.ADOPTED): FileState.SAVED,
    (FileState.ADOPTING, FileEvent.KEPT): FileState.SAVED,
    (FileState.ADOPTING, FileEvent.MISSED): FileState.LEAVING,
    (FileState.ADOPTING, FileEvent.LOST): FileState.SAVED,
    (FileState.LEAVING, FileEvent.REMOVED): None,
    (FileState.LEAVING, FileEvent.LOST): FileState.LEAVING,
}


class IllegalFileEvent(AssertionError):
    """An event came that the entry's state does not have."""


def after(state: FileState, event: FileEvent) -> FileState | None:
    """Return the next state, None when the entry is gone.

    Raises:
        IllegalFileEvent: the table has no such event for this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalFileEvent(f"{event.name} in {state.name}") from None
