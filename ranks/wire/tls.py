"""The certificates of one node: what ranks, agents and the master prove themselves with.

A folder holds `ca.pem`, `cert.pem` and `key.pem`: the authority that all nodes of the group
share, and this node's own certificate and key.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import grpc

CA_FILE = "ca.pem"
CERT_FILE = "cert.pem"
KEY_FILE = "key.pem"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# A key that is root's may be for the group of whom it is mounted for, as in a container.
_OTHERS_OF_ROOT = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO


class BadCertificates(Exception):
    """The folder cannot be used; the message names the file and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCertificates:
    """What the three files hold; the key is kept out of the repr, so that no log shows it."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)


def read_certificates(folder: Path) -> NodeCertificates:
    """Read the folder of a node.

    Raises:
        BadCertificates: A file is missing, or others than its owner may read the key.
    """
    key = folder / KEY_FILE
    try:
        _check_mode(key, key.stat(), os.geteuid())
        return NodeCertificates(
            ca=(folder / CA_FILE).read_bytes(),
            cert=(folder / CERT_FILE).read_bytes(),
            key=key.read_bytes(),
        )
    except OSError as err:
        raise BadCertificates(f"{err.filename}: {err.strerror}") from err


def _check_mode(key: Path, facts: os.stat_result, user: int) -> None:
    is_given = facts.st_uid == 0 != user
    mode = stat.S_IMODE(facts.st_mode)
    if mode & (_OTHERS_OF_ROOT if is_given else _OTHERS):
        most = "0640" if is_given else "0600"
        raise BadCertificates(f"{key} has mode {mode:04o}, allowed is {most} or less")


def channel_credentials(node: NodeCertificates) -> grpc.ChannelCredentials:
    """Credentials for who dials."""
    return grpc.ssl_channel_credentials(node.ca, node.key, node.cert)
