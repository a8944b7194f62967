"""Take the next job off the line, if a lane and its blocks are free.

Laws: first come, first served; a head that does not fit right now blocks those behind
it, so nobody overtakes; a job gets all the blocks that it can ever need, or none, so a
running reply never has to give way for memory.
"""

from lanehost.admission.line import Line
from lanehost.cache.blocks import BlockPool
from lanehost.lanes.lane import Lane
from lanehost.lanes.table import LaneTable


def take_job(line: Line, lanes: LaneTable, blocks: BlockPool) -> Lane | None:
    """Seat the head of the line, or return None when nobody waits or it must wait on."""
    head = line.head()
    if head is None or lanes.num_free == 0:
        return None
    block_ids = blocks.take(blocks.blocks_for(head.num_tokens))
    if block_ids is None:
        return None
    line.take(head.job_id)
    return lanes.seat(head, block_ids)
