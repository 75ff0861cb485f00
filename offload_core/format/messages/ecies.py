"""Data keys that Pulsar's Java client encrypted for a key of an elliptic curve: ECIES as Bouncy Castle does it.

A data key is stored as an ephemeral public key (an uncompressed point), the ciphertext, and an HMAC-SHA-1 of 20 bytes.
From the point and the shared secret of ECDH, KDF2 with SHA-1 (that of ANSI X9.63) derives the key of the HMAC, 16
bytes, and as many bytes as the ciphertext has, which are XORed with it. The HMAC is of the ciphertext and of the length
of no encoding parameters: 8 zero bytes. Source: IEEE 1363a, DHAES mode; docs/encryption.md.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_NO_PARAMETERS = bytes(8)


def decrypt_ecies(private_key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """The data key.

    Raises:
        ValueError: it was encrypted for another key, or its bytes were changed.
    """
    point_bytes = 1 + 2 * ((private_key.curve.key_size + 7) // 8)
    point = encrypted[:point_bytes]
    ciphertext = encrypted[point_bytes:-_MAC_BYTES]
    if len(encrypted) <= point_bytes + _MAC_BYTES:
        raise ValueError("too short")
    ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private_key.curve, point)
    secret = point + private_key.exchange(ec.ECDH(), ephemeral)
    derived = X963KDF(hashes.SHA1(), _MAC_KEY_BYTES + len(ciphertext), None).derive(secret)  # noqa: S303 - Pulsar's
    mac = hmac.HMAC(derived[:_MAC_KEY_BYTES], hashes.SHA1())  # noqa: S303 - Pulsar's
    mac.update(ciphertext + _NO_PARAMETERS)
    try:
        mac.verify(encrypted[-_MAC_BYTES:])
    except InvalidSignature:
        raise ValueError("wrong HMAC") from None
    return bytes(byte ^ mask for byte, mask in zip(ciphertext, derived[_MAC_KEY_BYTES:], strict=True))
