import os
import stat

import structlog

from lanehost.admin.servicer import AdminServicer
from lanehost.admin.socket import serving_admin, socket_path


async def test_the_socket_is_for_its_user_alone_and_goes_with_the_server(tmp_path):
    path = socket_path(tmp_path)
    async with serving_admin(tmp_path, AdminServicer(None)):
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert not path.exists()


async def test_nothing_else_of_the_process_is_made_with_another_mode(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", None)
    async with serving_admin(tmp_path, AdminServicer(None)):
        assert [one.name for one in tmp_path.iterdir()] == [socket_path(tmp_path).name]


async def test_what_a_killed_server_left_half_bound_is_no_hindrance(tmp_path):
    (tmp_path / ".a").mkdir()
    (tmp_path / ".a" / "s").write_text("")
    async with serving_admin(tmp_path, AdminServicer(None)):
        assert stat.S_ISSOCK(socket_path(tmp_path).stat().st_mode)


async def test_what_a_killed_server_left_is_no_hindrance(tmp_path):
    socket_path(tmp_path).write_text("")
    async with serving_admin(tmp_path, AdminServicer(None)):
        assert stat.S_ISSOCK(socket_path(tmp_path).stat().st_mode)


async def test_where_there_can_be_no_socket_all_else_goes_on(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with structlog.testing.capture_logs() as logs:
        async with serving_admin(folder, AdminServicer(None)):
            assert not socket_path(folder).exists()
    assert [entry["event"] for entry in logs] == ["admin_socket_missing"]
