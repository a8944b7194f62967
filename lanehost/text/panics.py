"""Turn a panic of the tokenizer's Rust code into an error of ours.

A panic arrives as a BaseException that is no Exception, so it would pass every
`except Exception`. What Rust's own hook writes to standard error first ("thread …
panicked at …") cannot be kept back from here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lanehost.errors import LanehostError


@contextmanager
def panics_as(error: LanehostError) -> Iterator[None]:
    """Raise `error` in place of a panic in the block; all else passes."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise error from panic
