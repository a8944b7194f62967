"""Take the next job off the line, set it up, and launch it in a lane: one at a time.

Called until it says why nobody more can go, it admits as many as fit: their prompts then
share the next steps. Launched is seated: how a prompt runs, with whom and how fast, is
decided anew for each step (`lanehost.lanes.scheduler`, ADR 15).

Law: the head of the line blocks those behind it, so nobody overtakes beyond what the
line's own order allows (`lanehost.admission.line`). One that waits for a prefix, of another lane
or from the disk, holds up its own scope alone: others have nothing to gain from that prefix.
"""

from lanehost.admission.fetcher import NO_FETCHER, Fetcher
from lanehost.admission.line import Line
from lanehost.admission.setup import AlreadyKept, Prepared, Wait, already_kept, set_up
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.lanes.lane import Lane
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable


def take_job(
    line: Line,
    lanes: LaneTable,
    blocks: BlockPool,
    cache: PromptCache,
    fetcher: Fetcher = NO_FETCHER,
) -> Lane | AlreadyKept | Wait:
    """Seat the head of the line; or take it off with nothing to run; or say what it waits for."""
    passed_over: set[str] = set()
    while (head := line.head(without=passed_over)) is not None:
        ready = _prepare(head, lanes, blocks, cache, fetcher)
        if ready in (Wait.PREFIX, Wait.FETCH):
            passed_over.add(head.job.scope)
            continue
        if isinstance(ready, Wait):
            return ready
        line.take_head(without=passed_over)
        if isinstance(ready, AlreadyKept):
            return ready
        return lanes.seat(head, ready.block_ids, num_cached_tokens=ready.num_cached_tokens)
    return Wait.PREFIX if passed_over else Wait.NOBODY


def _prepare(
    head: Sequence, lanes: LaneTable, blocks: BlockPool, cache: PromptCache, fetcher: Fetcher
) -> Prepared | AlreadyKept | Wait:
    # It may just have given its lane up, and a step in flight still writes it.
    has_lane = lanes.find(head.job.job_id) is not None
    if lanes.num_free and not has_lane:
        return set_up(head, lanes, blocks, cache, fetcher)
    wait = Wait.OWN_LANE if has_lane else Wait.LANE
    return already_kept(head, blocks, cache) or wait
