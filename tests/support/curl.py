"""Do what a `curl` command line says, where that program need not be installed.

An option that is not in `_VALUES` or `_FLAGS` is an error: add it when a page needs it.
"""

import shlex

import httpx

_VALUES = ("-d",)
_FLAGS = ("-sS", "-N")
_TIMEOUT_S = 60.0


def run_curl(command: str) -> str:
    """Run one command; return the body of the answer.

    Raises:
        ValueError: the command is none, or has an option that is not known here.
        httpx.HTTPStatusError: the server refuses.
    """
    program, *words = shlex.split(command)
    unknown = [word for word in words if word.startswith("-") and word not in _VALUES + _FLAGS]
    if program != "curl" or unknown:
        raise ValueError(f"not known here: {program} {unknown}")
    data = words.index("-d") + 1
    (url,) = [word for word in words if word.startswith("http://")]
    answer = httpx.post(
        url,
        content=words[data],
        # What curl says of -d unless it is told otherwise.
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        timeout=_TIMEOUT_S,
    )
    answer.raise_for_status()
    return answer.text
