"""Images in JSON: data URLs, and nothing else; nothing is ever fetched.

Laws: the bytes are base64 without exception, or the URL is refused; what a URL says of its kind is
what the bytes are, or it is refused; no part of a URL is repeated in a refusal but its scheme.
"""

import binascii
import re

from lanehost.images.header import ImageKind, kind_of

_KINDS = {
    "image/jpeg": ImageKind.JPEG,
    "image/jpg": ImageKind.JPEG,  # no registered name, and much used
    "image/png": ImageKind.PNG,
    "image/webp": ImageKind.WEBP,
}
_HEAD = re.compile(r"data:([^;,]{0,100})((?:;[^;,]{0,100}){0,8}),", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,20}(?=:)")


def read_data_url(url: str) -> bytes:
    """Return the bytes of an image's file.

    Raises:
        ValueError: it is no data URL of an image; the message is to be read behind its field.
    """
    head = _HEAD.match(url)
    if head is None:
        scheme = _SCHEME.match(url)
        named = "" if scheme is None else f" but {scheme[0].lower()}:"
        raise ValueError(
            f"is no data URL{named}; nothing is fetched: send data:image/png;base64,..."
        )
    label, options = head[1].lower(), head[2].lower().split(";")[1:]
    kind = _KINDS.get(label)
    if kind is None:
        allowed = ", ".join(name for name in _KINDS if name != "image/jpg")
        raise ValueError(f"is of the kind {label[:40]!r}, allowed are {allowed}")
    if options != ["base64"]:
        raise ValueError("is not base64: send data:image/png;base64,...")
    data = _decode(url[head.end() :])
    found = kind_of(data)
    if found is not None and found is not kind:
        raise ValueError(f"says {label} and is {found.value}")
    return data


def _decode(text: str) -> bytes:
    try:
        # Strict: without it, what is no base64 is skipped in silence.
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # text beyond ASCII, or binascii's own kind of it
        raise ValueError(f"is not valid base64: {error}") from None
