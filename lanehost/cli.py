"""The command `lanehost`: argv → settings; nobody else reads argv.

    lanehost serve       run the server
    lanehost follow      run a rank of a server on another host
    lanehost launch      one of these two, as torchrun, Slurm or LeaderWorkerSet says
    lanehost certs       make certificates for ranks on several hosts
    lanehost generate    one reply, streamed to standard output
    lanehost chat        talk to the model
    lanehost replay      run a recorded trail again
    lanehost bench       measure a server, the step loop, the numbers
    lanehost chaos       break a server on purpose, and judge it
    lanehost cache       look after a folder of the prompt cache on disk
    lanehost new-key     make a key for `serve --keys`

Exit codes of `serve`: 0 after an orderly end, 1 when it cannot start, 2 for a wrong
command line, 3 when the ranks were lost, 4 when a second signal cut the end short.
Those of `generate` and `chat` are in cli_client.py.
"""

import sys
from typing import Any

import click

import lanehost.cli_quiet  # noqa: F401 - before anything that loads grpc
from lanehost.cli_bench import bench
from lanehost.cli_cache import cache
from lanehost.cli_certs import certs
from lanehost.cli_chaos import chaos
from lanehost.cli_chat import chat
from lanehost.cli_client import generate
from lanehost.cli_keys import new_key
from lanehost.cli_launch import follow, launch
from lanehost.cli_replay import replay
from lanehost.cli_serve import serve_options, start


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lanehost", message="%(package)s %(version)s")
def main() -> None:
    """Serve a language model whose replies depend on the request alone.

    \b
    Begin with two terminals:
      lanehost serve
      lanehost generate --prompt "The sky is" --max-tokens 16
    """  # noqa: D301 - click wants the character itself


@main.command()
@serve_options
def serve(**options: Any) -> None:
    """Run the server until SIGTERM or Ctrl-C; a second one ends it at once.

    \b
    Examples:
      lanehost serve
      lanehost serve --tp 2 --dtype float32
      lanehost serve --model ./Qwen2.5-0.5B-Instruct --port 50052 --http-port off

    \b
    Exit codes: 0 ended in order, 1 cannot start, 2 wrong command line,
    3 the ranks were given up, 4 a second signal cut the end short, 5 a bug of lanehost.
    """  # noqa: D301 - click wants the character itself
    # Late, so that the client commands do not load the whole master.
    from lanehost import master  # noqa: PLC0415

    sys.exit(start(options, run=master.run))


main.add_command(follow)
main.add_command(launch)
main.add_command(certs)
main.add_command(generate)
main.add_command(chat)
main.add_command(replay)
main.add_command(new_key)
main.add_command(cache)
main.add_command(bench)
main.add_command(chaos)
