"""Ray Serve's router of requests, with our order: the library asks, `affinity` answers.

Law: it decides by what it is told alone, and keeps no prompt. How many requests are open at a
replica is the larger of what this router has sent there and what the replica last said, which
counts those of other routers, too.
"""

from collections import Counter
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from lanehost.replicas.affinity import LoadBound, by_turn
from lanehost.replicas.call import Call

IS_SERVING = "is_serving"


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # ray is not installed where this is checked
    """Sends requests of one scope that begin alike to one replica, within a bound."""

    def initialize_state(self, **options: Any) -> None:
        """Take `load_factor` and `spill_above`; called by Ray Serve."""
        self._bound = LoadBound(**options)
        self._num_sent: Counter[ReplicaID] = Counter()

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the replicas in the order in which they are asked, each a rank of its own."""
        if pending_request is None:
            return [[replica] for replica in candidate_replicas]
        # The next round, when no replica took the request, comes after a pause.
        pending_request.routing_context.should_backoff = True
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        order = by_turn(
            _key(pending_request),
            {name: self._load(replica) for name, replica in by_name.items()},
            bound=self._bound,
            resting={name for name, replica in by_name.items() if not _is_serving(replica)},
        )
        return [[by_name[name]] for name in order]

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Count a request that goes there."""
        super().on_send_request(replica_id)
        self._num_sent[replica_id] += 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Count a request that has ended there, in whatever way."""
        super().on_request_completed(replica_id, internal_request_id)
        if self._num_sent[replica_id] > 1:
            self._num_sent[replica_id] -= 1
        else:
            del self._num_sent[replica_id]

    def _load(self, replica: RunningReplica) -> int:
        said = self.replica_queue_len_cache.get(replica.replica_id) or 0
        return max(said, self._num_sent[replica.replica_id])


def _key(pending_request: PendingRequest) -> bytes:
    (call,) = pending_request.args
    assert isinstance(call, Call)
    return call.key


def _is_serving(replica: RunningReplica) -> bool:
    return bool(replica.routing_stats.get(IS_SERVING, True))
