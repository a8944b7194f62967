import io
import shlex
import shutil

from lanehost.console import Addresses, StartupConsole
from lanehost.errors import RankGroupLost
from lanehost.rank_group.facts import LoadPhase, LoadState
from tests.support.cards import make_card


class Terminal(io.StringIO):
    def isatty(self):
        return True


def state(phase=LoadPhase.LOADING):
    return LoadState(
        phase=phase,
        world_size=2,
        num_connected=2,
        num_loaded=1,
        done_bytes=50,
        total_bytes=100,
    )


def test_where_nobody_looks_no_bar_is_drawn():
    err = io.StringIO()
    with StartupConsole(out=io.StringIO(), err=err) as console:
        console.show(state())
    assert err.getvalue() == ""


def test_on_a_terminal_the_bar_says_what_happens_and_how_many_ranks_have_loaded():
    err = Terminal()
    with StartupConsole(out=io.StringIO(), err=err) as console:
        console.show(state())
        console._progress.refresh()
    assert "loading weights (1 of 2 ranks loaded)" in err.getvalue()


def test_the_ready_line_has_the_addresses_and_a_command_to_try():
    out = io.StringIO()
    console = StartupConsole(out=out, err=io.StringIO())
    console.ready(make_card(), Addresses(grpc="127.0.0.1:5", http="127.0.0.1:8"))
    line = out.getvalue()
    assert line.count("\n") == 1
    assert "on 1 rank: gRPC 127.0.0.1:5, HTTP http://127.0.0.1:8." in line
    assert "lanehost generate --address 127.0.0.1:5" in line


def test_the_ready_line_says_when_there_is_no_http_door():
    out = io.StringIO()
    console = StartupConsole(out=out, err=io.StringIO())
    console.ready(make_card(), Addresses(grpc="127.0.0.1:5", http=None))
    assert "no HTTP" in out.getvalue()


def test_the_command_to_try_is_one_that_a_shell_finds(monkeypatch):
    for path in ("", "/usr/bin:/bin"):
        monkeypatch.setenv("PATH", path)
        out = io.StringIO()
        console = StartupConsole(out=out, err=io.StringIO())
        console.ready(make_card(), Addresses(grpc="127.0.0.1:5", http=None))
        command = shlex.split(out.getvalue().split("Try: ")[1])[0]
        assert shutil.which(command) is not None


def test_the_last_line_of_a_server_that_lost_its_ranks_says_what_to_do():
    err = io.StringIO()
    StartupConsole(out=io.StringIO(), err=err).lost(RankGroupLost("rank 1 ended", epoch=1, rank=1))
    assert (
        err.getvalue()
        == "lanehost: the ranks were given up (rank 1 ended): start the server again\n"
    )
