"""What lies in launch/: every command line is one that lanehost takes, and the script runs."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from lanehost.cli import main
from lanehost.cli_launch import place, serve_part, start_following
from lanehost.cli_serve import start

LAUNCH = Path(__file__).parents[1] / "launch"
SLURM = {
    "SLURM_NTASKS": "2",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOB_NODELIST": "n[1-2]",
}
with socket.create_server(("127.0.0.1", 0)) as taken:
    PORT = str(taken.getsockname()[1])
LWS = {"LWS_LEADER_ADDRESS": "lanehost-0.lanehost.default", "LWS_GROUP_SIZE": "2"}


def settings_of(words, environment=None):
    """What a command line asks for: of `serve`, of `follow`, or of `launch` in an environment."""
    command, *args = words
    options = main.commands[command].make_context(command, list(args)).params
    if command == "launch":
        options = place(options | {"tp": None}, environment)
    options["model"] = str(LAUNCH)  # a folder that is there
    asked = []

    def run(settings):
        asked.append(settings)
        return 0

    if options.get("rank") in (None, 0):
        start(serve_part(options), run=run)
    else:
        start_following(options, run=run)
    return asked[0]


def both(words, environment, rank_variable):
    return [settings_of(words, environment | {rank_variable: rank}) for rank in ("0", "1")]


def test_the_slurm_script_serves_on_one_node_and_follows_on_the_other():
    script = (LAUNCH / "lanehost.sbatch").read_text().replace("\\\n", " ")
    line = re.search(r"^exec (srun .*)$", script, re.MULTILINE)[1]
    words = shlex.split(
        line.replace("${MODEL:?}", "/m").replace("${RANK_TLS:-", "").replace("}", "")
    )
    lanehost = words.index("lanehost")
    assert all(word.startswith("-") for word in words[1:lanehost])
    served, followed = both(words[lanehost + 1 :], SLURM, "SLURM_PROCID")
    assert (served.ranks.tp, served.ranks.rank_port.host) == (2, "n1")
    assert (followed.rank, followed.master.host) == (1, "n1")
    assert served.ranks.rank_port.tls == followed.master.tls == Path("/etc/lanehost/tls")
    subprocess.run(["bash", "-n", str(LAUNCH / "lanehost.sbatch")], check=True)


def pods():
    group, service = yaml.safe_load_all((LAUNCH / "lws.yaml").read_text())
    template = group["spec"]["leaderWorkerTemplate"]
    return group, service, template, template["leaderTemplate"], template["workerTemplate"]


def test_the_manifest_serves_in_the_leader_and_follows_in_the_worker():
    group, _, template, leader, worker = pods()
    words = [pod["spec"]["containers"][0]["args"] for pod in (leader, worker)]
    assert words[0] == words[1]
    environment = LWS | {"LWS_GROUP_SIZE": str(template["size"])}
    served, followed = both(words[0], environment, "LWS_WORKER_INDEX")
    name = "{name}-0.{name}.{namespace}".format(**group["metadata"])
    assert served.ranks.rank_port.host == followed.master.host == name
    assert served.host == "0.0.0.0"


def test_the_probes_of_the_manifest_ask_the_ports_that_are_served():
    _, service, _, leader, _ = pods()
    container = leader["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    served = settings_of(container["args"], LWS | {"LWS_WORKER_INDEX": "0"})
    asked = (served.port, served.http_port, served.ranks.rank_port.port)
    assert (ports["grpc"], ports["http"], ports["ranks"]) == asked
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["grpc"]["port"] == served.port
    assert container["livenessProbe"]["tcpSocket"]["port"] == served.port
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= served.ranks.load_timeout_s
    grace_s = leader["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > served.drain_grace_s + served.drain_timeout_s + 2
    assert {port["port"] for port in service["spec"]["ports"]} <= set(ports.values())
    assert service["spec"]["selector"].items() <= leader["metadata"]["labels"].items()


def unit_command(name):
    text = (LAUNCH / name).read_text().replace("\\\n", " ")
    return shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])


def test_the_units_serve_on_one_host_and_follow_on_the_other():
    served = settings_of(unit_command("lanehost.service")[1:])
    followed = settings_of(unit_command("lanehost-follow.service")[1:])
    assert (served.ranks.rank_port.host, served.ranks.rank_port.port) == (
        followed.master.host,
        followed.master.port,
    )
    assert (served.ranks.tp, followed.tp, followed.rank) == (2, 2, 1)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("name", ["lanehost.service", "lanehost-follow.service"])
def test_systemd_finds_nothing_wrong_with_the_units(name, tmp_path):
    program = unit_command(name)[0]
    copy = tmp_path / name
    # The program must be there for it.
    copy.write_text((LAUNCH / name).read_text().replace(program, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        check=False,
        capture_output=True,
        text=True,
    )
    mine = [line for line in done.stderr.splitlines() if name in line or str(copy) in line]
    assert mine == []


def test_the_container_serves_by_itself_and_its_ports_are_told():
    text = (LAUNCH / "Containerfile").read_text()
    words = json.loads(re.search(r"^CMD (.*)$", text, re.MULTILINE)[1])
    served = settings_of(words)
    assert served.host == "0.0.0.0"
    told = re.search(r"^EXPOSE (.*)$", text, re.MULTILINE)[1].split()
    assert told == [str(served.port), str(served.http_port)]
    (program,) = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])
    assert program.endswith("/bin/lanehost")


class Cluster:
    """The script, with an ssh that stays here: `ssh HOST COMMAND` runs it in a shell."""

    def __init__(self, folder, hosts, *args, lanehost):
        self.folder = folder
        (folder / "hosts").write_text(hosts)
        ssh = folder / "ssh"
        ssh.write_text('#!/bin/sh\necho "$1" >> "$0.targets"\nshift\nexec sh -c "$*"\n')
        ssh.chmod(0o755)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(LAUNCH / "cluster"), str(folder / "hosts"), *args],
                env={**os.environ, "SSH": str(ssh), "LANEHOST": str(lanehost), "RANK_PORT": PORT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ended(self, timeout_s=60):
        code = self.process.wait(timeout_s)
        self.process.stdout.close()
        return code

    def targets(self):
        return sorted((self.folder / "ssh.targets").read_text().split())

    def log(self):
        return (self.folder / "log").read_text()


def fake_lanehost(folder, body):
    """A command that writes its arguments to a file named by its first, and then does this."""
    path = folder / "lanehost"
    path.write_text(f'#!/bin/sh\necho "$@" > {folder}/args-$1.part\n'
                    f"mv {folder}/args-$1.part {folder}/args-$1\n{body}\n")  # fmt: skip
    path.chmod(0o755)
    return path


def wait_for(*paths):
    until_s = time.monotonic() + 30
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until_s, paths
        time.sleep(0.02)
    return [path.read_text().split() for path in paths]


HOSTS = "# two of them\n10.0.0.1 first.example\n\n10.0.0.2\n"
ASLEEP = "trap 'kill $child; exit 0' TERM\nsleep 1000 & child=$!\nwait $child"


def test_the_cluster_script_gives_each_host_a_command_that_lanehost_takes(tmp_path):
    args = ["--model", "/a model", "--rank-tls=/tls", "--lanes", "3", "--log-json"]
    lanehost = fake_lanehost(tmp_path, ASLEEP)
    cluster = Cluster(tmp_path, HOSTS, *args, lanehost=lanehost)
    serve, follow = wait_for(tmp_path / "args-serve", tmp_path / "args-follow")
    assert cluster.targets() == ["10.0.0.2", "first.example"]
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.ended() == 0
    # A blank in a value was lost by the `echo` of the double, and not on the way.
    served = settings_of([word for word in serve if word != "model"])
    followed = settings_of([word for word in follow if word != "model"])
    assert (served.ranks.tp, served.ranks.num_lanes) == (2, 3)
    assert served.ranks.rank_port == followed.master
    assert (followed.master.host, followed.master.port, followed.rank) == ("10.0.0.1", int(PORT), 1)


def test_the_first_host_that_fails_ends_all_and_gives_its_code(tmp_path):
    lanehost = fake_lanehost(tmp_path, f'[ "$1" = follow ] && exit 7\n{ASLEEP}')
    cluster = Cluster(tmp_path, HOSTS, lanehost=lanehost)
    assert cluster.ended() == 7


def test_when_the_script_is_killed_the_hosts_end_their_ranks(tmp_path):
    pids = tmp_path / "pids"
    lanehost = fake_lanehost(tmp_path, f"echo $$ >> {pids}\n{ASLEEP}")
    cluster = Cluster(tmp_path, HOSTS, lanehost=lanehost)
    wait_for(tmp_path / "args-serve", tmp_path / "args-follow", pids)
    until_s = time.monotonic() + 30
    while len(ranks := pids.read_text().split()) < 2:
        assert time.monotonic() < until_s
        time.sleep(0.02)
    cluster.process.kill()
    cluster.ended()
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        assert time.monotonic() < until_s, "a rank outlived the script"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("hosts", "args", "says"),
    [
        ("10.0.0.1\n", (), "there must be two hosts or more"),
        (HOSTS, ("--tp", "2"), "--tp comes from the hosts"),
        (HOSTS, ("--master=a:1",), "--master=a:1 comes from the hosts"),
    ],
)
def test_what_the_script_cannot_do_is_refused_before_anything_runs(tmp_path, hosts, args, says):
    cluster = Cluster(tmp_path, hosts, *args, lanehost=fake_lanehost(tmp_path, "exit 0"))
    assert cluster.ended() == 2
    assert says in cluster.log()
    assert not (tmp_path / "args-serve").exists()


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.timeout(300)
def test_the_script_runs_a_group_that_answers_and_ends_in_order(tmp_path):
    lanehost = tmp_path / "real"
    lanehost.write_text(f'#!/bin/sh\nexec {sys.executable} -m lanehost "$@"\n')
    lanehost.chmod(0o755)
    args = ["--port", "0", "--http-port", "off", "--threads", "1"]
    cluster = Cluster(tmp_path, "127.0.0.1\n127.0.0.1\n", *args, lanehost=lanehost)
    lines = [cluster.process.stdout.readline() for _ in range(2)]
    assert "on 2 ranks" in lines[1], cluster.log()
    address = re.search(r"gRPC (\S+:\d+)", lines[1])[1]
    words = [sys.executable, "-m", "lanehost", "generate", "--address", address]
    said = subprocess.run(
        [*words, "--prompt", "The capital of France is", "--max-tokens", "3"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "Paris" in said.stdout
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.ended() == 0, cluster.log()
