"""Ray Serve's router with our order: what it is told, and what it counts.

The router is made without Ray around it: `initialize_state` and the hooks are what Ray calls.
"""

import importlib
from types import SimpleNamespace

import pytest

from lanehost.replicas.affinity import affinity_key, by_affinity
from lanehost.replicas.call import Call

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]
NAMES = ("one", "two", "three")
KEY = affinity_key("team", b"head")


@pytest.fixture(scope="module")
def kind():
    return importlib.import_module("lanehost.replicas.router").PrefixRouter


class SaidLoads(dict):
    """What replicas last said, by id."""

    def update(self, replica_id, queue_len):
        self[replica_id] = queue_len


@pytest.fixture
def router(kind):
    made = kind.__new__(kind)
    made._use_replica_queue_len_cache = False
    made._replica_queue_len_cache = SaidLoads()
    made.initialize_state(load_factor=1.0, spill_above=2)
    return made


class ReplicaId:
    def __init__(self, name):
        self.unique_id = name


def replicas(**serving):
    return [
        SimpleNamespace(
            replica_id=ReplicaId(name), routing_stats={"is_serving": serving.get(name, True)}
        )
        for name in NAMES
    ]


def pending():
    call = Call(key=KEY, method="POST", target="/", headers=(), body=b"")
    return SimpleNamespace(args=[call], routing_context=SimpleNamespace(should_backoff=False))


async def order(router, candidates):
    request = pending()
    ranks = await router.choose_replicas(candidates, request)
    assert request.routing_context.should_backoff
    return [replica.replica_id.unique_id for (replica,) in ranks]


async def test_the_order_is_that_of_affinity(router):
    assert await order(router, replicas()) == by_affinity(KEY, NAMES)


async def test_requests_that_are_open_count_until_they_have_ended(router):
    here = replicas()
    first = by_affinity(KEY, NAMES)[0]
    (owner,) = [one.replica_id for one in here if one.replica_id.unique_id == first]
    for _ in range(2):
        router.on_send_request(owner)
    assert (await order(router, here))[-1] == first
    router.on_request_completed(owner, "id")
    assert (await order(router, here))[0] == first
    for _ in range(3):  # also when Ray says so of one that was never sent
        router.on_request_completed(owner, "id")
    router.on_send_request(owner)
    assert (await order(router, here))[0] == first


async def test_what_a_replica_says_of_other_routers_counts_too(router):
    here = replicas()
    first = by_affinity(KEY, NAMES)[0]
    (owner,) = [one.replica_id for one in here if one.replica_id.unique_id == first]
    router._replica_queue_len_cache.update(owner, 2)
    assert (await order(router, here))[-1] == first


async def test_a_replica_whose_server_replaces_ranks_is_asked_last(router):
    first, *others = by_affinity(KEY, NAMES)
    assert await order(router, replicas(**{first: False})) == [*others, first]


async def test_without_a_request_all_are_candidates(router):
    here = replicas()
    assert await router.choose_replicas(here) == [[replica] for replica in here]


def test_a_bound_that_cannot_work_is_refused(kind):
    with pytest.raises(ValueError, match="spill_above"):
        kind.__new__(kind).initialize_state(spill_above=0)
