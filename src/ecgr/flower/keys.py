"""Certificates for the server and keys for the sites, made here with `cryptography`: no openssl, no shell.

A CA signs the server's certificate; sites trust that CA and nothing else. Every site makes a P-384 key of its own, by
which the server knows it (`ecgr federate keys`). The private half never leaves the site, the public one goes to the
server. An Ed25519 key signs the code that sites run; the server does without its private half.
"""

import datetime
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ecgr.errors import ConfigError, EnvironmentFault, refused

VALID_DAYS = 825
CA_NAME = "ecgr federation CA"
LOOPBACK = ("localhost", "127.0.0.1")


def make_certificates(directory: Path, hosts: Sequence[str] = LOOPBACK) -> None:
    """Write ``ca.crt``, ``server.pem`` and ``server.key`` for a server reached under ``hosts``.

    The CA's own key is not written: a certificate for another host needs a new CA, which nobody can have stolen.
    """
    private_folder(directory)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = (
        _builder(CA_NAME, ca_key.public_key(), is_ca=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        _builder(hosts[0], server_key.public_key(), is_ca=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(ca.public_bytes(Encoding.PEM))
    (directory / "server.pem").write_bytes(server.public_bytes(Encoding.PEM))
    key = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(directory / "server.key", key)


def make_node_key(directory: Path) -> Path:
    """Write a site's key pair, ``node`` and ``node.pub``, and return the path of the public one; never over another."""
    if (directory / "node").exists() or (directory / "node.pub").exists():
        raise ConfigError(f"{directory / 'node'}: there is a key already; move it away first, and register the new one")
    return _make_pair(directory / "node", ec.generate_private_key(ec.SECP384R1()))


def signing_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """The key that signs code, as `ssh-keygen -t ed25519` makes it; made where it is missing, with its public half."""
    if not path.exists():
        _make_pair(path, ed25519.Ed25519PrivateKey.generate())
    expected = f"{path}: expected an Ed25519 key without a passphrase (ssh-keygen -t ed25519 -N '')"
    with refused(expected):
        key = load_ssh_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(f"{expected}; it is of another kind")
    return key


def _make_pair(private: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> Path:
    private_folder(private.parent)
    write_private(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = private.with_name(f"{private.name}.pub")
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def read_public_key(path: Path) -> bytes:
    """A site's public key as Flower names it to the ServerApp."""
    with refused(f"{path}: not a public key", "; a site makes one with `ecgr federate keys`"):
        key = load_ssh_public_key(path.read_bytes())
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(path: Path) -> str:
    """What two people compare to know that a public key arrived as it was sent; as `ssh-keygen -lf` says it."""
    digest = sha256(b64decode(path.read_bytes().split()[1])).digest()
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


def private_folder(path: Path) -> None:
    """A folder for its owner alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be made a folder for its owner alone: {error.strerror}") from None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _builder(name: str, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.CertificateBuilder:
    """A certificate for ``name``, issued by the CA, whose key signs certificates or nothing but connections."""
    now, never = datetime.datetime.now(datetime.UTC), ("content_commitment", "key_encipherment", "data_encipherment")
    uses = dict.fromkeys((*never, "key_agreement", "encipher_only", "decipher_only"), False)
    usage = x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **uses)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(CA_NAME))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
