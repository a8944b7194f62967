"""The page as a whole: what can be read, by whom, and what is never in it."""

import asyncio
import re
from dataclasses import replace

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from lanehost.disk_cache.interface import FileReason
from lanehost.errors import LanehostError
from lanehost.job import FinishReason, Priority
from lanehost.lanes.lane import LaneState
from lanehost.metrics.disk import DROPPED
from lanehost.metrics.family import Kind
from lanehost.metrics.metrics import FAMILIES, STANDING, Metrics
from lanehost.metrics.seen import SEEN
from lanehost.metrics.tally import ERRORS
from lanehost.rank_group.events import LossCause
from ranks.plan import Draw, RefusalKind
from tests.support.fake_door import FakeDoor
from tests.support.jobs import make_job, read_all
from tests.support.metered import VERSION, MeteredRig, read_page

OPENMETRICS = "application/openmetrics-text"
# What a browser, a plain scraper and Prometheus send, and what nobody should.
ACCEPTS = [
    "",
    "*/*",
    "text/html,application/xhtml+xml",
    "text/plain;version=0.0.4;q=0.5",
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.x;escaping=allow-utf-8",
    "application/openmetrics-text;version=9999.9,;;;",
]


def new_metrics():
    return Metrics(clock=lambda: 0.0, version=VERSION)


@pytest.mark.parametrize("accept", ACCEPTS)
def test_every_accept_gets_a_page_that_parses_with_every_metric(accept):
    page = MeteredRig().metrics.page(accept)
    text = page.body.decode()
    if OPENMETRICS in accept:
        assert page.content_type.startswith(OPENMETRICS)
        families = list(openmetrics_parser.text_string_to_metric_families(text))
    else:
        assert page.content_type == "text/plain; version=0.0.4; charset=utf-8"
        families = list(parser.text_string_to_metric_families(text))
    wanted = {family.name.removesuffix("_total") for family in FAMILIES}
    got = {family.name for family in families}
    assert {re.sub("_info$", "", name) for name in got} == {
        re.sub("_info$", "", name) for name in wanted
    }
    assert all(family.samples for family in families)
    assert all(family.documentation.endswith(".") for family in families)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_and_units_are_as_prometheus_wants_them(family):
    assert re.fullmatch(r"lanehost_[a-z]+(_[a-z]+)*", family.name)
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert family.name.endswith("_info") == (family.kind is Kind.INFO)
    if family.kind is Kind.HISTOGRAM:
        assert family.name.endswith("_seconds")
    assert not family.name.endswith(("_s", "_ns", "_ms", "_count", "_sum", "_bucket"))


def test_no_name_is_there_twice():
    names = [family.name for family in FAMILIES]
    assert sorted(names) == sorted(set(names))


async def test_while_the_model_loads_the_page_says_so_and_counts_refusals():
    metrics = new_metrics()
    with pytest.raises(LanehostError):
        await metrics.gate.submit(None)
    values = read_page(metrics.page("").body.decode())
    assert values["lanehost_build_info", VERSION] == 1
    assert values["lanehost_serving",] == values["lanehost_draining",] == 0
    assert values["lanehost_requests_refused_total", "Starting"] == 1
    seen = {family.name for family in SEEN}
    assert not {key[0] for key in values} & seen


def test_serving_and_draining_follow_the_door():
    rig, door = MeteredRig(), FakeDoor()
    said = []
    for door.serving in (True, False):
        rig.metrics.gate.open(door)
        said.append((rig.value("serving"), rig.value("draining")))
    assert said == [(1, 0), (0, 1)]


def test_two_servers_in_one_process_share_no_number():
    one, other = new_metrics(), new_metrics()
    one.observer.job_arrived(make_job())
    assert b'accepted_total{priority="foreground",scope=""} 1.0' in one.page("").body
    assert b'accepted_total{priority="foreground",scope=""} 0.0' in other.page("").body


# The only values that labels may have: nothing here is made by a client.
ALLOWED = {
    "priority": {one.value for one in Priority},
    "scope": {"a", "b"},
    "error": set(ERRORS),
    "ending": {*(reason.value for reason in FinishReason), *ERRORS},
    "state": {state.value for state in LaneState},
    "kind": {*(kind.value for kind in RefusalKind), "prompt", "decode", "draft"},
    "version": {VERSION},
    "device": {"fake"},
    "dtype": {"fake"},
    "weights": {"fake"},
    "collective": {"none"},
    "world_size": {"1"},
    "prompt_cache": {"on", "off"},
    "max_drafts": {"0"},
    "reason": {*(reason.value for reason in FileReason), *DROPPED, "no_blocks", "late"},
    "cause": {cause.value for cause in LossCause},
}


async def test_labels_are_bounded_and_nothing_of_a_client_is_in_them():
    rig = MeteredRig(scopes=("a", "b"))
    before = len(rig.values())
    jobs = [
        replace(
            make_job((211, 212, n), max_tokens=n % 4 + 1, draw=Draw(seed=n), scope="ab"[n % 2]),
            label=f"secret-{n}",
        )
        for n in range(40)
    ]
    rig.ranks.nan_seed = 7
    async with rig.running():
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
        async with rig.send(jobs[0]):
            pass
    assert len(rig.values()) == before
    text = rig.page()
    assert "secret" not in text
    assert not [job.job_id for job in jobs if job.job_id in text]
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "le"}
            assert all(value in ALLOWED[name] for name, value in labels.items())


def test_a_family_tells_the_labels_that_it_has():
    rig = MeteredRig(scopes=("a", "b"))
    labels = {
        sample.name: tuple(sorted(name for name in sample.labels if name != "le"))
        for family in parser.text_string_to_metric_families(rig.page())
        for sample in family.samples
    }
    for family in FAMILIES:
        name = f"{family.name}_count" if family.kind is Kind.HISTOGRAM else family.name
        assert labels[name] == tuple(sorted(family.labels))


def test_what_always_stands_is_no_more_than_who_and_whether():
    assert {family.name for family in STANDING} == {
        "lanehost_build_info",
        "lanehost_serving",
        "lanehost_draining",
    }
