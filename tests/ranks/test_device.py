"""What a machine can give a rank."""

import os

import pytest
import torch

from ranks.device import (
    available_bytes,
    choose_device,
    choose_num_threads,
    free_bytes,
    host_free_bytes,
    usable_cores,
)
from ranks.errors import BadDevice

MEMINFO = "MemTotal:       1000 kB\nMemAvailable:    600 kB\n"


def test_the_cpu_is_the_cpu():
    assert choose_device("cpu", rank=1, world_size=2) == torch.device("cpu")


def test_an_unknown_device_is_refused_by_name():
    with pytest.raises(BadDevice, match="device is 'tpu', known are auto, cpu and cuda"):
        choose_device("tpu", rank=0, world_size=1)


def test_more_ranks_than_cuda_devices_are_refused_with_both_numbers():
    there = torch.cuda.device_count()
    with pytest.raises(BadDevice, match=f"--tp is {there + 1}, torch finds {there};"):
        choose_device("cuda", rank=0, world_size=there + 1)


def test_threads_are_what_was_asked_or_an_equal_part_of_the_cores():
    assert choose_num_threads(3, world_size=2) == 3
    assert choose_num_threads(None, world_size=1) == usable_cores()
    assert choose_num_threads(None, world_size=10_000) == 1


def test_free_memory_of_a_host_is_what_the_kernel_calls_available():
    assert available_bytes(MEMINFO) == 600 * 1024


def test_a_host_gives_no_more_than_its_kernel_and_its_groups_say():
    assert 0 < host_free_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_ranks_of_one_host_share_its_memory():
    cpu = torch.device("cpu")
    alone, shared = free_bytes(cpu, world_size=1), free_bytes(cpu, world_size=2)
    assert shared == pytest.approx(alone / 2, rel=0.2)
