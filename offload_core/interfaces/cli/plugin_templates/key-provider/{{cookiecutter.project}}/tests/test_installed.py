"""The provider is found by its name, and a scan decrypts messages by it."""

from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from offload_hooks.testing import MemoryLedgerStore
from pulsar_offload import LedgerOffloader, open_tier, scan

from {{ cookiecutter.module }}.key_provider import OAEP

DATA_KEY, NONCE = b"k" * 32, b"n" * 12


def field(number, data):
    """A field of protobuf that is text or bytes."""
    size = len(data)
    length = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + data


def encrypted_entry(value, public_key):
    """An entry as a producer sends it that encrypts for the key `orders`."""
    key = field(1, b"orders") + field(2, public_key.encrypt(DATA_KEY, OAEP))
    times = b"\x10\x00\x18\x01"  # sequence id 0, publish time 1
    metadata = field(1, b"shop") + times + field(13, key) + field(15, NONCE)
    return len(metadata).to_bytes(4, "big") + metadata + AESGCM(DATA_KEY).encrypt(NONCE, value, None)


def test_a_scan_decrypts(tmp_path):
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "orders.pem").write_bytes(pem)
    hot = MemoryLedgerStore()
    writer = hot.create({})
    writer.append(encrypted_entry(b"a secret order", private_key.public_key()))
    writer.close()
    with open_tier(tmp_path / "cold") as tier:
        topic = {"managedledgername": "acme/cold/persistent/orders"}
        LedgerOffloader(tier.store).offload(hot.open(writer.ledger_id), uuid4(), topic)
        keys = f"{{ cookiecutter.name }}:directory={tmp_path}"
        table = scan(tier, "acme/cold/orders", key_provider=keys, columns=["value"]).to_table()
    assert table["value"].to_pylist() == [b"a secret order"]
