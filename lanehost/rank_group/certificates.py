"""Make an authority and certificates for the hosts of a group: for tests and small clusters.

Laws: keys are readable by their owner alone from their first moment; nothing that is there is
overwritten. The certificates are made by the library `cryptography`, which the extra `certs`
installs.
"""

import datetime as dt
import ipaddress
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanehost.errors import StartupFailed
from ranks.wire.tls import CA_FILE, CERT_FILE, KEY_FILE

CA_KEY_FILE = "ca-key.pem"
_COMMON_NAME_BYTES = 64


def make_certificates(folder: Path, hosts: Sequence[str], *, days: int) -> list[Path]:
    """Make an authority in `folder`, and a folder for each host in it; returns these.

    An authority that is there already signs for more hosts.

    Raises:
        StartupFailed: The library is not installed, or a file is there already.
    """
    with _library() as tools:
        folder.mkdir(parents=True, exist_ok=True)
        authority = _Authority(tools, folder, days=days)
        return [authority.make_node(folder / host, host) for host in hosts]


@contextmanager
def _library() -> Iterator["_Tools"]:
    try:
        tools = _Tools()
    except ImportError as err:
        raise StartupFailed(
            "`lanehost certs` needs the library cryptography: pip install 'lanehost[certs]' "
            f"({err})"
        ) from err
    try:
        yield tools
    except OSError as err:
        raise StartupFailed(f"{err.filename}: {err.strerror}") from err


class _Tools:
    """The library, which is loaded here alone: it is no dependency of a server."""

    def __init__(self) -> None:
        # Late, because the extra may not be installed.
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

        self.x509, self.ec = x509, ec
        self.hashes, self.serialization = hashes, serialization
        self.usage, self.name = ExtendedKeyUsageOID, NameOID


# Any, below: classes of a library that need not be there.
class _Authority:
    """Signs; its key is made if it is not there."""

    def __init__(self, tools: _Tools, folder: Path, *, days: int) -> None:
        self._tools = tools
        self._days = days
        certificate, key = folder / CA_FILE, folder / CA_KEY_FILE
        if certificate.exists():
            self._certificate = tools.x509.load_pem_x509_certificate(certificate.read_bytes())
            self._key: Any = tools.serialization.load_pem_private_key(key.read_bytes(), None)
            return
        self._key = tools.ec.generate_private_key(tools.ec.SECP256R1())
        name = self._named("lanehost test authority")
        constraints = tools.x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(name, name, self._key.public_key())
        self._certificate = builder.add_extension(constraints, critical=True).sign(
            self._key, tools.hashes.SHA256()
        )
        _write(key, self._pem_of_key(self._key), 0o600)
        _write(certificate, self._pem(self._certificate), 0o644)

    def make_node(self, folder: Path, host: str) -> Path:
        """Make the folder of one host."""
        tools, x509 = self._tools, self._tools.x509
        key = tools.ec.generate_private_key(tools.ec.SECP256R1())
        builder = self._builder(
            self._named(host[:_COMMON_NAME_BYTES]), self._certificate.subject, key.public_key()
        )
        uses = [tools.usage.SERVER_AUTH, tools.usage.CLIENT_AUTH]
        certificate = (
            builder.add_extension(
                x509.SubjectAlternativeName([self._name_of(host)]), critical=False
            )
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._key, tools.hashes.SHA256())
        )
        folder.mkdir(mode=0o700)
        _write(folder / KEY_FILE, self._pem_of_key(key), 0o600)
        _write(folder / CERT_FILE, self._pem(certificate), 0o644)
        _write(folder / CA_FILE, self._pem(self._certificate), 0o644)
        return folder

    def _builder(self, subject: Any, issuer: Any, public_key: Any) -> Any:
        now = dt.datetime.now(dt.UTC)
        x509 = self._tools.x509
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            # Clocks of hosts differ a little.
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=self._days))
        )

    def _named(self, name: str) -> Any:
        x509 = self._tools.x509
        return x509.Name([x509.NameAttribute(self._tools.name.COMMON_NAME, name)])

    def _name_of(self, host: str) -> Any:
        try:
            return self._tools.x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            return self._tools.x509.DNSName(host)

    def _pem(self, certificate: Any) -> bytes:
        pem: bytes = certificate.public_bytes(self._tools.serialization.Encoding.PEM)
        return pem

    def _pem_of_key(self, key: Any) -> bytes:
        tools = self._tools.serialization
        pem: bytes = key.private_bytes(
            tools.Encoding.PEM, tools.PrivateFormat.PKCS8, tools.NoEncryption()
        )
        return pem


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
