"""The manifests of the replicas: our command line takes theirs, and their times fit each other."""

import importlib
from pathlib import Path

import pytest
import yaml

from lanehost.cli import serve
from lanehost.cli_serve import start

FOLDER = Path(__file__).parents[2] / "launch" / "kubernetes" / "replicas"
SERVERS, BALANCER = "servers.yaml", "balancer.yaml"
# What ranks may take to end behind the drain, and what a kubelet takes for itself.
END_MARGIN_S = 10


def documents(file):
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def only(file, kind):
    (found,) = [document for document in documents(file) if document["kind"] == kind]
    return found


def container(file):
    (found,) = only(file, "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def pod(file):
    return only(file, "Deployment")["spec"]["template"]["spec"]


def settings_of_servers():
    arguments = container(SERVERS)["args"]
    assert arguments[0] == "serve"
    options = serve.make_context("serve", list(arguments[1:])).params
    kept = []

    def keep(settings):
        kept.append(settings)
        return 0

    # The files are on the cluster's volumes.
    start(
        {**options, "model": "embedded", "keys": None},
        run=keep,
        find_embedded=lambda: Path(options["model"]),
    )
    return options, kept[0]


def envoy():
    return yaml.safe_load((FOLDER / "envoy.yaml").read_text())["static_resources"]


def test_the_command_line_is_one_that_serve_takes_and_its_files_are_mounted():
    options, settings = settings_of_servers()
    mounts = [mount["mountPath"] for mount in container(SERVERS)["volumeMounts"]]
    assert str(Path(options["model"]).parent) in mounts
    assert str(Path(options["keys"]).parent) in mounts
    assert container(SERVERS)["command"] == ["lanehost"]
    # A pod's probes and other pods come from outside of it, and so keys are wanted.
    assert settings.host == "0.0.0.0"
    names = {volume["name"] for volume in pod(SERVERS)["volumes"]}
    assert names == {mount["name"] for mount in container(SERVERS)["volumeMounts"]}


def test_a_server_has_as_many_cpus_as_its_ranks_have_threads():
    _, settings = settings_of_servers()
    cpus = settings.ranks.tp * settings.ranks.num_threads
    resources = container(SERVERS)["resources"]
    assert resources["requests"]["cpu"] == resources["limits"]["cpu"] == str(cpus)


def test_a_server_is_killed_only_when_its_drain_and_its_ranks_have_had_their_time():
    _, settings = settings_of_servers()
    drain_s = settings.drain_grace_s + settings.drain_timeout_s
    needed_s = drain_s + settings.ranks.stop_timeout_s + END_MARGIN_S
    assert pod(SERVERS)["terminationGracePeriodSeconds"] >= needed_s
    assert "lifecycle" not in container(SERVERS)
    # The balancer drains by its pause: at SIGTERM it cuts what is open.
    pause_s = container(BALANCER)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause_s >= drain_s
    assert pod(BALANCER)["terminationGracePeriodSeconds"] >= pause_s + END_MARGIN_S


def test_a_server_that_goes_takes_requests_until_all_have_heard_of_it():
    _, settings = settings_of_servers()
    for cluster in envoy()["clusters"]:
        (check,) = cluster["health_checks"]
        seen_s = seconds(check["interval"]) * check["unhealthy_threshold"]
        assert settings.drain_grace_s > seen_s + seconds(check["timeout"])
        assert settings.drain_grace_s > seconds(cluster["dns_refresh_rate"])
    probe = container(SERVERS)["readinessProbe"]
    assert settings.drain_grace_s > probe["periodSeconds"] * probe["failureThreshold"]


def seconds(text):
    return float(text.removesuffix("s"))


def test_a_server_is_not_killed_while_it_may_load_or_replace_ranks():
    _, settings = settings_of_servers()
    probes = container(SERVERS)
    startup = probes["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= settings.ranks.load_timeout_s
    assert probes["readinessProbe"]["grpc"]["port"] == settings.port
    # Health says no for as long as ranks are replaced; only who waits may do that.
    assert probes["livenessProbe"]["httpGet"]["path"] == "/metrics"


def test_ports_and_names_are_the_same_everywhere():
    _, settings = settings_of_servers()
    ports = {"grpc": settings.port, "http": settings.http_port}
    for file in (SERVERS, BALANCER):
        deployment, service = only(file, "Deployment"), only(file, "Service")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert {port["name"]: port["containerPort"] for port in container(file)["ports"]} == ports
        assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == ports
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert service["spec"]["selector"] == labels
        assert only(file, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    headless = only(SERVERS, "Service")
    assert headless["spec"]["clusterIP"] == "None"
    for cluster in envoy()["clusters"]:
        (group,) = cluster["load_assignment"]["endpoints"]
        (endpoint,) = group["lb_endpoints"]
        address = endpoint["endpoint"]["address"]["socket_address"]
        assert address["address"] == headless["metadata"]["name"]
        assert address["port_value"] == ports[cluster["name"].removeprefix("servers_")]
    listening = {
        listener["name"]: listener["address"]["socket_address"]["port_value"]
        for listener in envoy()["listeners"]
    }
    assert listening == ports


def routes():
    for listener in envoy()["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        (host,) = manager["route_config"]["virtual_hosts"]
        (route,) = host["routes"]
        yield manager, route["route"]


def test_no_reply_is_cut_for_its_length_and_none_is_asked_for_twice():
    for manager, route in routes():
        assert manager["stream_idle_timeout"] == route["timeout"] == "0s"
        # Neither 5xx nor a reset: the server may have begun.
        assert set(route["retry_policy"]["retry_on"].split(",")) <= {
            "connect-failure",
            "refused-stream",
        }
        # Without it the hash finds the same server again.
        (predicate,) = route["retry_policy"]["retry_host_predicate"]
        assert predicate["name"].endswith("previous_hosts")


def test_what_begins_alike_goes_to_one_server_within_a_bound():
    for _, route in routes():
        names = [policy["header"]["header_name"] for policy in route["hash_policy"]]
        assert names == ["x-lanehost-affinity", "authorization"]
        assert all(policy["terminal"] for policy in route["hash_policy"])
    for cluster in envoy()["clusters"]:
        assert cluster["lb_policy"] == "RING_HASH"
        bound = cluster["common_lb_config"]["consistent_hashing_lb_config"]
        assert 100 < bound["hash_balance_factor"] <= 200


def test_the_kustomization_names_all_files_that_are_there():
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    (generated,) = kustomization["configMapGenerator"]
    named = {*kustomization["resources"], *generated["files"], "kustomization.yaml"}
    assert named == {path.name for path in FOLDER.glob("*.yaml")}
    (volume,) = pod(BALANCER)["volumes"]
    assert volume["configMap"]["name"] == generated["name"]


@pytest.mark.envoy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", [SERVERS, BALANCER])
def test_every_document_is_what_kubernetes_takes(file):
    validator = importlib.import_module("kubernetes_validate")
    for document in documents(file):
        validator.validate(document, "1.33", strict=True)
