"""One of two rank processes that run a prompt and some decode steps over a real collective.

Called as `python -m tests.support.group_rank CHECKPOINT RANK FOLDER COLLECTIVE DTYPE`; the
leader writes the logits of each step to `logits.npy` in the folder.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.distributed import FileStore

from ranks.abort import Abort
from ranks.process_group import form_group
from ranks.shards import Place
from tests.support.tiny_worlds import CPU, Lane, load_models, scattered_table

PROMPT = [11, 250, 7, 99, 42, 3, 180]
NUM_STEPS = 6


def main(checkpoint: str, rank: int, folder: str, collective: str, dtype: str) -> None:
    torch.set_num_threads(1)
    group = form_group(
        FileStore(f"{folder}/store", 2),
        Place(epoch=1, rank=rank, world_size=2),
        collective=collective,
        device=CPU,
        timeout_s=30,
        abort=Abort(),
    )
    model = load_models(Path(checkpoint), 2, getattr(torch, dtype))[rank]
    kv = model.new_kv_store(16, 16)
    lane = Lane(0, PROMPT, scattered_table(0, 1, 16))
    found = []
    for _ in range(NUM_STEPS):
        logits = model.forward([lane.rows()], kv, group)
        ids = torch.zeros(1, dtype=torch.int64) if logits is None else logits.argmax(dim=-1)
        lane.token_ids.append(int(group.broadcast_ids(ids)[0]))
        found.append(logits)
    if rank == 0:
        np.save(f"{folder}/logits.npy", torch.cat(found).numpy())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
