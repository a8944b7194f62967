"""An engine over fake ranks whose admin service answers on a socket in a folder."""

from contextlib import asynccontextmanager

from lanehost.admin.servicer import AdminServicer
from lanehost.admin.socket import serving_admin
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_files import FakeDisk
from tests.support.jobs import make_job, read_all

PROMPT = tuple(range(1, 22))


@asynccontextmanager
async def answering(folder, *, scopes=("",), **rig_args):
    """Run it, with a prompt of each scope saved; `rig_args` are `EngineRig`'s."""
    rig = EngineRig(disk=FakeDisk(), **rig_args)
    async with rig.running():
        for scope in scopes:
            await read_all(rig.send(make_job(PROMPT, max_tokens=3, scope=scope)))
        await settle_loop(60)
        assert rig.disk.is_quiet
        async with serving_admin(folder, AdminServicer(rig.disk)):
            yield rig
