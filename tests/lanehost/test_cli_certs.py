"""`lanehost certs` on the command line."""

from click.testing import CliRunner

from lanehost.cli import main


def test_a_folder_for_each_host_is_made_and_told(tmp_path):
    args = ["certs", str(tmp_path), "--host", "10.0.0.1", "--host", "node-b", "--days", "2"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0
    assert result.output.split() == [str(tmp_path / "10.0.0.1"), str(tmp_path / "node-b")]
    assert (tmp_path / "node-b" / "key.pem").exists()


def test_what_is_there_stays_and_the_exit_code_says_so(tmp_path):
    args = ["certs", str(tmp_path), "--host", "a"]
    CliRunner().invoke(main, args)
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    assert "File exists" in result.output


def test_a_host_must_be_named():
    assert CliRunner().invoke(main, ["certs", "tls"]).exit_code == 2
