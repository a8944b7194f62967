import os
import subprocess
import sys
import threading
from multiprocessing import shared_memory

from lanehost.chaos.resources import holding_of, names_left, parent_of, usage_of


def test_a_file_and_a_thread_more_are_seen():
    before = usage_of(os.getpid())
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    reader, writer = os.pipe()
    held = usage_of(os.getpid())
    for end in (reader, writer):
        os.close(end)
    done.set()
    thread.join()
    assert held.num_files == before.num_files + 2
    assert held.num_threads == before.num_threads + 1
    assert held.rss_bytes > 1 << 20


def test_who_has_ended_holds_nothing_and_has_no_parent():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    assert (usage_of(process.pid), parent_of(process.pid)) == (None, None)


def test_a_zombie_has_ended():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert (usage_of(process.pid), parent_of(process.pid)) == (None, None)
    process.wait()


def test_the_parent_of_a_process_is_who_started_it():
    assert parent_of(os.getpid()) == os.getppid()


def test_a_server_s_holding_has_the_processes_that_live():
    found = holding_of({"master": os.getpid(), "rank 0": 2**22 + 1})
    assert set(found.usages) == {"master"}
    assert found.shared_names == frozenset()


def test_a_name_in_shared_memory_is_seen_while_it_is_mapped_and_is_there():
    memory = shared_memory.SharedMemory(create=True, size=4096)
    try:
        assert memory.name in usage_of(os.getpid()).shared_names
        assert names_left(frozenset({memory.name, "never"})) == {memory.name}
    finally:
        memory.unlink()
    assert memory.name not in usage_of(os.getpid()).shared_names
    assert names_left(frozenset({memory.name})) == frozenset()
    memory.close()
