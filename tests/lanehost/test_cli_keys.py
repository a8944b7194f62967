import pytest
from click.testing import CliRunner, Result

from lanehost.cli_keys import new_key
from lanehost.keys import digest_of, is_key
from lanehost.keys_file import parse_keys


def _run(*args: str) -> Result:
    return CliRunner().invoke(new_key, list(args))


def _key(result: Result) -> str:
    said, _, key = result.stderr.strip().partition(": ")
    assert said.startswith("the key of ")
    return key


def test_a_new_key_opens_the_scope_of_its_table() -> None:
    result = _run("team-a", "--weight", "3")
    ring = parse_keys(result.stdout.encode())
    assert (result.exit_code, ring.scope_of(_key(result))) == (0, "team-a")
    assert ring.weights == {"team-a": 3}


def test_the_key_is_on_standard_error_alone_and_so_never_in_the_file() -> None:
    result = _run("team-a")
    assert _key(result) not in result.stdout
    assert digest_of(_key(result)).hex() in result.stdout


def test_every_key_is_another_one_and_can_be_sent() -> None:
    made = {_key(_run("a")) for _ in range(5)}
    assert len(made) == 5
    assert all(is_key(key) and len(key) >= 43 for key in made)


def test_tables_can_be_appended_to_each_other() -> None:
    text = "".join(_run(name).stdout for name in ("a", "b"))
    assert set(parse_keys(text.encode()).weights) == {"a", "b"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "NAME"),
        (["two words"], "'two words': give 1 to 64 letters"),
        (["a", "--weight", "0"], "0 is not in the range 1<=x<=1000"),
        (["a", "--weight", "1001"], "1001 is not in the range"),
    ],
)
def test_a_wrong_command_line_is_named_and_exits_2(args: list[str], said: str) -> None:
    result = _run(*args)
    assert result.exit_code == 2
    assert said in result.stderr
