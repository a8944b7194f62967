"""In place of `python -m ranks.quality`: reads the order, answers as told, loads nothing.

Run as a script: `quality_program.py BEHAVIOUR` and the arguments of the real one.
"""

import json
import os
import sys
from pathlib import Path

EXIT_BY_ITSELF = 7
REASON = "the file is not a model"


def quality_command(behaviour: str) -> tuple[str, ...]:
    """What starts it; "ok" behaves, "stay:FILE" writes its pid there and does not end."""
    return (sys.executable, str(Path(__file__)), behaviour)


def say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    behaviour, _, pid_file = sys.argv[1].partition(":")
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()))
    if behaviour == "exit-at-once":
        return EXIT_BY_ITSELF
    order = json.loads(sys.stdin.readline())
    if behaviour == "refuse":
        say({"error": REASON})
        return 1
    for number, window in enumerate(order["windows"]):
        if behaviour == "exit-in-mid-word" and number == 1:
            sys.stdout.write('{"kl": [0.')
            sys.stdout.flush()
            return EXIT_BY_ITSELF
        say(
            {
                "kl": [0.5] * (len(window) - order["first"] - 1),
                "num_same_top": 1,
                "reference_nll": 1.0,
                "served_nll": 2.0,
                "argv": sys.argv[2:],
            }
        )
    if behaviour == "stay":
        sys.stdin.read()  # until whoever started it lets go
    return 0


if __name__ == "__main__":
    sys.exit(main())
