"""Limits of control groups, read from trees like those of the kernel."""

import pytest

from ranks.cgroup import core_quota, memory_left

V2 = "0::/user/app\n"
V1 = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_dot_", ".", 1)).write_text(f"{text}\n")


def memory_v2(folder, limit, usage, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\nactive_file 9"
    write(folder, memory_dot_max=limit, memory_dot_current=usage, memory_dot_stat=stat)


def memory_v1(folder, limit, usage, inactive=0):
    stat = f"inactive_file 1\ntotal_inactive_file {inactive}"
    write(
        folder, memory_dot_limit_in_bytes=limit, memory_dot_usage_in_bytes=usage,
        memory_dot_stat=stat,
    )  # fmt: skip


def test_without_a_group_or_a_limit_nothing_is_said(tmp_path):
    memory_v2(tmp_path / "user/app", "max", 10)
    for membership in ("", V2, "no such line\n"):
        assert memory_left(membership, tmp_path) is None
        assert core_quota(membership, tmp_path) is None


def test_what_is_left_is_the_limit_less_what_cannot_be_dropped(tmp_path):
    memory_v2(tmp_path / "user/app", 1000, 700, inactive=500)
    assert memory_left(V2, tmp_path) == 800


@pytest.mark.parametrize("name", ["user/app", "user", ""])
def test_the_smallest_of_all_groups_up_to_the_root_counts(tmp_path, name):
    for folder in ("user/app", "user", ""):
        memory_v2(tmp_path / folder, 100_000, 0)
        write(tmp_path / folder, cpu_dot_max="400000 100000")
    memory_v2(tmp_path / name, 9_000, 4_000)
    write(tmp_path / name, cpu_dot_max="150000 100000")
    assert memory_left(V2, tmp_path) == 5_000
    assert core_quota(V2, tmp_path) == 1.5


def test_nothing_is_left_above_the_limit_and_no_more_than_it_below(tmp_path):
    memory_v2(tmp_path / "user/app", 1000, 1500, inactive=100)
    assert memory_left(V2, tmp_path) == 0
    memory_v2(tmp_path / "user/app", 1000, 100, inactive=500)
    assert memory_left(V2, tmp_path) == 1000


def test_version_1_has_a_tree_for_each_controller(tmp_path):
    memory_v1(tmp_path / "memory/docker/abc", 1000, 400, inactive=100)
    memory_v1(tmp_path / "memory", 9_223_372_036_854_771_712, 10**9)
    write(
        tmp_path / "cpu,cpuacct/docker", cpu_dot_cfs_quota_us=250_000, cpu_dot_cfs_period_us=100_000
    )
    write(tmp_path / "cpu,cpuacct", cpu_dot_cfs_quota_us=-1, cpu_dot_cfs_period_us=100_000)
    assert memory_left(V1, tmp_path) == 700
    assert core_quota(V1, tmp_path) == 2.5


@pytest.mark.parametrize("membership", [V1, "0::/docker/abc\n", "0::/../other\n"])
def test_in_a_container_the_mounted_root_is_the_group(tmp_path, membership):
    memory_v1(tmp_path / "memory", 1000, 400)
    memory_v2(tmp_path, 1000, 400)
    assert memory_left(membership, tmp_path) == 600


def test_a_path_never_leaves_the_mounted_tree(tmp_path):
    memory_v2(tmp_path / "outside", 10, 0)
    memory_v2(tmp_path / "mounts", 1000, 400)
    assert memory_left("0::/../outside\n", tmp_path / "mounts") == 600


def test_version_2_beside_version_1_has_a_folder_of_its_own(tmp_path):
    memory_v2(tmp_path / "unified/user", 1000, 400)
    memory_v1(tmp_path / "memory/app", 5000, 4900)
    assert memory_left("0::/user\n9:memory:/app\n", tmp_path) == 100
