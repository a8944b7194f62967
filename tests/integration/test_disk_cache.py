"""The prompt cache on disk on the real model: the same replies, in every tier and after any end."""

import random
import signal
import time

import httpx
import pytest

from lanehost import Client
from lanehost.admin import client
from lanehost.keys_file import scope_table
from tests.support.served import serving, starting

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
BLOCK = 16


def ids(num_tokens, *, seed=4):
    rng = random.Random(seed)
    return [rng.randrange(17, 40000) for _ in range(num_tokens)]


def ask(served, token_ids, **options):
    options = {"max_tokens": 8, "ignore_eos": True} | options
    with Client(served.grpc_address) as asker:
        return asker.generate(token_ids=token_ids, **options)


def wait_for_manifests(folder, num_entries):
    """Wait until so many are written: a kill would take what is not."""
    until_s = time.monotonic() + 30
    while len(list(folder.glob("*/*.manifest"))) < num_entries:
        assert time.monotonic() < until_s, list(folder.rglob("*"))
        time.sleep(0.01)


def metric(served, name):
    page = httpx.get(f"http://{served.http_address}/metrics").text
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).split()[1])


def keys_file(folder, secrets):
    path = folder / "keys.toml"
    path.write_text("".join(scope_table(scope, key, 1) for scope, key in secrets.items()))
    return str(path)


WAYS = ({}, {"temperature": 0.8, "seed": 7})


@pytest.mark.parametrize(
    "args",
    [
        ["--tp", "1"],
        ["--tp", "2"],
        ["--tp", "1", "--dtype", "float32"],
    ],
    ids=" ".join,
)
def test_cold_memory_disk_and_after_a_restart_are_one_reply(tmp_path, args):
    asked = [(ids(200, seed=number), way) for number, way in enumerate(WAYS)]
    with serving(tmp_path, *args, "--prompt-cache", "off") as served:
        replies = [ask(served, prompt, **way) for prompt, way in asked]
    assert {one.usage.cached_tokens for one in replies} == {0}
    cold = [one.token_ids for one in replies]
    cache = ["--disk-cache", str(tmp_path / "cache"), "--disk-cache-mode", "full"]
    for num_on_disk in (0, 192):
        with serving(tmp_path, *args, *cache) as served:
            replies = [ask(served, prompt, **way) for prompt, way in asked]
            again = [ask(served, prompt, **way) for prompt, way in asked]
        assert [one.token_ids for one in replies] == cold
        assert [one.token_ids for one in again] == cold
        assert {one.usage.disk_cached_tokens for one in replies} == {num_on_disk}
        assert {one.usage.cached_tokens for one in again} == {192}
        assert {one.usage.disk_cached_tokens for one in again} == {0}


def test_a_conversation_prefills_only_its_new_turn_after_a_restart(tmp_path):
    cache = ["--disk-cache", str(tmp_path / "cache"), "--disk-cache-mode", "full"]
    first, turn = ids(900), ids(40, seed=5)
    with serving(tmp_path, *cache) as served:
        reply = ask(served, first)
        conversation = [*first, *reply.token_ids, *turn]
        cold = ask(served, conversation, disk_cache="off", temperature=0.8, seed=3)
    with serving(tmp_path, *cache) as served:
        warm = ask(served, conversation, temperature=0.8, seed=3)
    assert warm.token_ids == cold.token_ids
    # The last token of the reply was drawn and never run; whole blocks of the rest are there.
    assert warm.usage.disk_cached_tokens == (900 + 7) // BLOCK * BLOCK


def test_what_is_shared_in_its_first_half_alone_misses(tmp_path):
    cache = ["--disk-cache", str(tmp_path / "cache"), "--disk-cache-mode", "128"]
    prompt = ids(256)
    # Behind what the disk has, within it, and one token short of it.
    prompts = [[*prompt[:shared], *ids(56, seed=6)] for shared in (200, 120, 127)]
    with serving(tmp_path, "--prompt-cache", "off") as served:
        cold = [ask(served, one, temperature=0.8, seed=3) for one in prompts]
    assert {one.usage.cached_tokens for one in cold} == {0}
    with serving(tmp_path, *cache) as served:
        ask(served, prompt)
    with serving(tmp_path, *cache) as served:
        warm = [ask(served, one, temperature=0.8, seed=3) for one in prompts]
    assert [one.token_ids for one in warm] == [one.token_ids for one in cold]
    half, less, short = warm
    assert short.usage.cached_tokens == 112
    assert half.usage.disk_cached_tokens == 128
    assert less.usage.cached_tokens == 112, "memory knows of 128 tokens, and cuts them"
    assert less.usage.disk_cached_tokens == 0


def test_what_memory_has_no_more_comes_from_the_disk_of_the_same_server(tmp_path):
    room = ["--kv-tokens", "512"]
    # The other one needs all blocks but one.
    prompt, other = ids(200), ids(480, seed=7)
    with serving(tmp_path, *room, "--prompt-cache", "off") as served:
        cold = ask(served, prompt, temperature=0.8, seed=3)
    folder = tmp_path / "cache"
    cache = ["--disk-cache", str(folder), "--disk-cache-mode", "full"]
    with serving(tmp_path, *room, *cache) as served:
        ask(served, prompt)
        wait_for_manifests(folder, 1)
        ask(served, other, disk_cache="off")
        after = ask(served, prompt, temperature=0.8, seed=3)
    assert after.token_ids == cold.token_ids
    assert (after.usage.cached_tokens, after.usage.disk_cached_tokens) == (192, 192)


def test_two_scopes_share_nothing(tmp_path):
    secrets = {scope: f"key-of-team-{scope}-0123456789" for scope in ("one", "two")}
    keys = keys_file(tmp_path, secrets)
    cache = ["--disk-cache", str(tmp_path / "cache"), "--disk-cache-mode", "full"]
    prompt = ids(100)
    for scope, expected in (("one", 0), ("one", 96), ("two", 0)):
        with (
            serving(tmp_path, "--keys", keys, *cache) as served,
            Client(served.grpc_address, key=secrets[scope]) as asker,
        ):
            reply = asker.generate(token_ids=prompt, max_tokens=2)
            assert reply.usage.disk_cached_tokens == expected


@pytest.mark.parametrize("tp", ["1", "2"])
def test_after_a_rank_is_lost_prompts_come_from_the_disk(tmp_path, tp):
    folder = tmp_path / "cache"
    args = ["--tp", tp, "--disk-cache", str(folder), "--disk-cache-mode", "full"]
    prompt, way = ids(200), {"temperature": 0.8, "seed": 3}
    with serving(tmp_path, *args) as served:
        before = ask(served, prompt, **way)
        wait_for_manifests(folder, 1)
        served.rank_processes()[0].send_signal(signal.SIGKILL)
        served.wait_event("epoch_formed")
        after = ask(served, prompt, **way)
    assert after.token_ids == before.token_ids
    assert after.usage.disk_cached_tokens == 192


def test_a_server_that_was_killed_leaves_what_it_had_written(tmp_path):
    folder = tmp_path / "cache"
    args = ["--disk-cache", str(folder), "--disk-cache-mode", "full"]
    prompt = ids(200)
    with starting(tmp_path, *args) as served:
        served.wait_ready()
        before = ask(served, prompt)
        wait_for_manifests(folder, 1)
        served.process.kill()
    with serving(tmp_path, *args) as served:
        after = ask(served, prompt)
    assert (after.token_ids, after.usage.disk_cached_tokens) == (before.token_ids, 192)


def test_hits_are_computed_again_and_agree(tmp_path):
    args = ["--tp", "2", "--disk-cache", str(tmp_path / "cache"), "--disk-cache-mode", "full"]
    prompts = [ids(100, seed=number) for number in range(2)]
    with serving(tmp_path, *args) as served:
        for prompt in prompts:
            ask(served, prompt)
    with serving(tmp_path, *args, "--cache-self-check", "1") as served:
        for number, prompt in enumerate(prompts, start=1):
            ask(served, prompt, temperature=0.7, seed=number)
            until_s = time.monotonic() + 30
            while metric(served, "lanehost_disk_cache_checks_total") < number:
                assert time.monotonic() < until_s
                time.sleep(0.05)
        assert metric(served, "lanehost_disk_cache_differences_total") == 0


def test_two_servers_never_share_a_folder(tmp_path):
    args = ["--disk-cache", str(tmp_path / "cache")]
    with serving(tmp_path, *args), starting(tmp_path, *args) as second:
        assert second.process.wait(60) == 1
        assert "another server uses" in second.log_text()


def test_operators_ask_a_server_that_runs(tmp_path):
    folder = tmp_path / "cache"
    args = ["--tp", "2", "--disk-cache", str(folder), "--disk-cache-mode", "full"]
    prompt = ids(100)
    with serving(tmp_path, *args) as served:
        ask(served, prompt)
        wait_for_manifests(folder, 1)
        assert client.get_stats(folder).disk_entries == 1
        verified = client.verify(folder)
        assert (verified.whole, verified.broken, verified.skipped) == (1, 0, 0)
        flushed = client.flush(folder, None)
        assert (flushed.memory_entries, flushed.disk_entries) == (1, 1)
        assert ask(served, prompt).usage.cached_tokens == 0


@pytest.mark.parametrize("spoil", ["truncate", "flip", "empty", "remove"])
def test_a_spoilt_file_is_a_cold_run_and_moved_aside(tmp_path, spoil):
    folder = tmp_path / "cache"
    args = ["--disk-cache", str(folder), "--disk-cache-mode", "full"]
    prompt = ids(100)
    with serving(tmp_path, *args) as served:
        before = ask(served, prompt)
    (file,) = folder.glob("*/*.safetensors")
    content = bytearray(file.read_bytes())
    match spoil:
        case "truncate":
            file.write_bytes(content[: len(content) // 2])
        case "flip":
            content[-1000] ^= 1
            file.write_bytes(content)
        case "empty":
            file.write_bytes(b"")
        case "remove":
            file.unlink()
    with serving(tmp_path, *args) as served:
        after = ask(served, prompt)
        assert len(served.events("disk_cache_miss")) == 1
    assert (after.token_ids, after.usage.cached_tokens) == (before.token_ids, 0)
