"""Take the next job off the line, set it up, and launch it in a lane: one at a time.

Called until it says why nobody more can go, it admits as many as fit: their prompts then
share the next steps. Launched is seated: how a prompt runs, with whom and how fast, is
decided anew for each step (`lanehost.lanes.scheduler`, ADR 15).

Law: the head of the line blocks those behind it, so nobody overtakes beyond what the
line's own order allows (`lanehost.admission.line`).
"""

from lanehost.admission.line import Line
from lanehost.admission.setup import AlreadyKept, Wait, set_up
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.lanes.lane import Lane
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable


def take_job(
    line: Line, lanes: LaneTable, blocks: BlockPool, cache: PromptCache
) -> Lane | AlreadyKept | Wait:
    """Seat the head of the line; or take it off with nothing to run; or say what it waits for."""
    head = line.head()
    if head is None:
        return Wait.NOBODY
    ready = _why_not_yet(head, lanes) or set_up(head, lanes, blocks, cache)
    if isinstance(ready, Wait):
        return ready
    line.take_head()
    if isinstance(ready, AlreadyKept):
        return ready
    return lanes.seat(head, ready.block_ids, num_cached_tokens=ready.num_cached_tokens)


def _why_not_yet(head: Sequence, lanes: LaneTable) -> Wait | None:
    if lanes.find(head.job.job_id) is not None:
        # It has just given its lane up, and a step in flight still writes it.
        return Wait.OWN_LANE
    return Wait.LANE if lanes.num_free == 0 else None
