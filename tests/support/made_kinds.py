"""Makes `tests/golden/broker/kinds`: `python -m made_kinds FOLDER`, with `tests/support` in the path.

A broker, Pulsar's Java client and an S3 service are started. The client sends chunked and encrypted messages
to three topics, and reads them; the broker offloads them. What it wrote goes into the folder, with what was read.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from live.broker import PulsarAdmin
from live.clients import JavaClient, as_text
from oracle import Oracle
from s3 import Boto, new_bucket
from servers.broker import Broker
from servers.versitygw import Versitygw

KEY = "orders"
TOPICS: dict[str, list[dict[str, Any]]] = {
    "chunks": [
        {"chunk_bytes": 2000, "compression": "LZ4"},
        {"batch": 5, "compression": "ZSTD"},
        {"chunk_bytes": 3000},
    ],
    "encrypted": [{"encrypt_for": [KEY], "batch": 4, "compression": "ZSTD"}, {"encrypt_for": [KEY]}],
    "encrypted-chunks": [{"encrypt_for": [KEY], "chunk_bytes": 2000, "compression": "ZLIB"}, {"batch": 3}],
}
"""By topic, the options of its producers; each sends twelve messages, one producer after another."""


def messages(seed: str) -> list[dict[str, Any]]:
    """Twelve: empty, small, and some that are larger than a chunk."""
    draw = random.Random(seed)
    return [
        {
            "value": draw.randbytes(draw.choice([0, 15, 300, 2500, 9000])),
            "key": f"key {i % 3}",
            "properties": {"i": str(i)},
        }
        for i in range(12)
    ]


def write_keys(folder: Path) -> None:
    """The private and the public key."""
    folder.mkdir(parents=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (folder / f"{KEY}.pem").write_bytes(private)
    (folder / f"{KEY}.pub").write_bytes(public)


def make(folder: Path, s3: Versitygw, broker: Broker, java_client: JavaClient) -> None:
    """All of it, into a folder that is not there yet."""
    write_keys(folder / "keys")
    bucket = new_bucket(s3)
    admin = PulsarAdmin(broker.endpoint, broker.bookie_endpoint)
    admin.make_namespace("acme/kinds", broker.s3_policies(bucket), cluster=broker.cluster)
    (folder / "topics").mkdir()
    for name, sendings in TOPICS.items():
        topic = f"persistent://acme/kinds/{name}"
        for number, options in enumerate(sendings):
            java_client.produce(topic, messages(f"{name}:{number}"), keys=folder / "keys", **options)
        read = java_client.consume(topic, keys=folder / "keys")
        assert len(read) == 12 * len(sendings)
        lines = [json.dumps({key: as_text(value) for key, value in row.items()}) for row in read]
        text = "".join(f"{line}\n" for line in lines)
        (folder / "topics" / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        admin.offload_all(topic)
    (folder / "objects").mkdir()
    client, stored = Boto(s3, bucket).client, []
    for listed in client.list_objects_v2(Bucket=bucket)["Contents"]:
        found = client.get_object(Bucket=bucket, Key=listed["Key"])
        data = found["Body"].read()
        (folder / "objects" / f"{listed['Key']}.gz").write_bytes(gzip.compress(data, mtime=0))
        stored.append({"key": listed["Key"], "size": len(data), "metadata": found["Metadata"]})
    (folder / "objects.json").write_text(json.dumps(stored, indent=1) + "\n")


def main(folder: Path) -> None:
    """Start the servers, and make it."""
    with (
        TemporaryDirectory() as temporary,
        Versitygw().start(Path(temporary) / "s3") as s3,
        Broker(s3).start(Path(temporary) / "broker") as broker,
        Oracle(Path(temporary)) as oracle,
    ):
        make(folder, s3, broker, JavaClient(oracle, broker.service_url))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
