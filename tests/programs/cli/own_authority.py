"""A certificate authority of one's own, as companies have one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates. `file` holds its own."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "The company")])
        own = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), _SIGNS)
        self.file = folder / "authority.pem"
        self.file.write_bytes(own)

    def certify(self, file: Path, host: str, *, is_plain: bool = False) -> None:
        """Write a file with a certificate for a host, its key, and the authority's own certificate.

        A plain one does not say which key signed it. Python trusts no authority for such a certificate from 3.13 on.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names: x509.GeneralName = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = self._signed(name, key, x509.SubjectAlternativeName([names]), *([] if is_plain else [signer]))
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(signed + private + self.file.read_bytes())

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        for each in extensions:
            builder = builder.add_extension(each, critical=isinstance(each, (x509.BasicConstraints, x509.KeyUsage)))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)
