"""Checksums and signatures of what the driver `s3` writes: what is sent, kept, noticed."""

from __future__ import annotations

import base64
import hashlib
import itertools
import zlib
from dataclasses import replace

import pytest
from network.fronts import Front, make_certificate
from s3 import opened, signed_anew

from offload_hooks.errors import StoreUnavailableError

MIB = 1 << 20


def test_the_store_keeps_the_checksums_of_blocks_and_small_objects(driver, boto):
    blocks = [b"a" * 5 * MIB, b"z"]
    upload = driver.begin_data("k", "x/y", {})
    receipts = [
        driver.write_block(upload, number, (number - 1) * 5 * MIB, block)
        for number, block in enumerate(blocks, 1)
    ]
    sums = [zlib.crc32(block).to_bytes(4, "big") for block in blocks]
    listed = boto.parts(upload)
    driver.commit_data(upload, receipts, True)
    driver.write_index("i", b"index", "a/b", {}, True)
    assert [base64.b64decode(part["ChecksumCRC32"]) for part in listed] == sums
    whole = base64.b64encode(zlib.crc32(b"".join(sums)).to_bytes(4, "big")).decode()
    kept = boto.head("k", ChecksumMode="ENABLED")
    assert (kept["ChecksumCRC32"], kept["ChecksumType"]) == (f"{whole}-2", "COMPOSITE")
    index = boto.head("i", ChecksumMode="ENABLED")["ChecksumCRC32"]
    assert base64.b64decode(index) == zlib.crc32(b"index").to_bytes(4, "big")


def test_without_checksums_nothing_of_them_is_sent_and_the_object_is_the_same(given, front, boto):
    with opened(**given | {"endpoint_url": front.url}, checksum="none") as driver:
        upload = driver.begin_data("k", "x/y", {})
        first = driver.write_block(upload, 1, 0, b"a" * 5 * MIB)
        driver.commit_data(upload, [first, driver.write_block(upload, 2, 5 * MIB, b"z")], True)
        driver.write_index("i", b"index", "a/b", {}, True)
    assert boto.get("k") == b"a" * 5 * MIB + b"z"
    assert boto.get("i") == b"index"
    sent = [
        *itertools.chain(*(request.headers for request in front.requests)),
        *(request.body.decode("latin-1") for request in front.requests),
    ]
    assert not any("checksum" in text.lower() for text in sent)


def test_a_service_that_ignores_checksums_is_sent_none_at_the_commit(fronted, front, versitygw, boto):
    def ignored(request):
        headers = {name: value for name, value in request.headers.items() if "checksum" not in name}
        return signed_anew(replace(request, headers=headers), versitygw)

    front.change = ignored
    upload = fronted.begin_data("k", "x/y", {})
    fronted.commit_data(upload, [fronted.write_block(upload, 1, 0, b"abc")], True)
    (commit,) = (request for request in front.requests if request.method == "POST" and request.body)
    assert b"ETag" in commit.body
    assert b"Checksum" not in commit.body
    assert boto.get("k") == b"abc"


@pytest.mark.parametrize("signed_as_it_is", [True, False], ids=["the signature", "the checksum"])
def test_bytes_that_are_damaged_on_their_way_are_noticed_by_(
    fronted, front, versitygw, boto, signed_as_it_is
):
    def damaged(request):
        if not request.body:
            return request
        request = replace(request, body=request.body[:-1] + b"?")
        return request if signed_as_it_is else signed_anew(request, versitygw)

    upload = fronted.begin_data("k", "x/y", {})
    front.change = damaged
    for write in (
        lambda: fronted.write_block(upload, 1, 0, b"abc"),
        lambda: fronted.write_index("i", b"abc", "a/b", {}, True),
    ):
        with pytest.raises(StoreUnavailableError, match="damaged"):
            write()
    assert (boto.parts(upload), boto.get("i")) == ([], None)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("scheme", "changed", "signed"),
    [
        ("http", {}, True),
        ("https", {}, False),
        ("https", {"checksum": "none"}, True),
        ("https", {"payload_signing": "always"}, True),
        ("http", {"payload_signing": "never"}, False),
    ],
)
@pytest.mark.parametrize("told_by", ["option", "environment"])
def test_what_is_written_is_signed_unless_the_line_is_private_and_a_checksum_is(
    given, tls, versitygw, boto, monkeypatch, told_by, scheme, changed, signed
):
    with Front(versitygw.endpoint, tls=tls if scheme == "https" else None) as front:
        given = given | changed | {"endpoint_url": front.url, "ca_bundle": str(tls[0])}
        if told_by == "environment":
            monkeypatch.setenv("AWS_ENDPOINT_URL", given.pop("endpoint_url"))
        with opened(**given) as driver:
            driver.write_index("i", b"index", "a/b", {}, True)
            upload = driver.begin_data("k", "x/y", {})
            driver.commit_data(upload, [driver.write_block(upload, 1, 0, b"abc")], True)
    hashes = {
        request.headers["x-amz-content-sha256"] for request in front.requests if request.method == "PUT"
    }
    expected = {hashlib.sha256(body).hexdigest() for body in (b"index", b"abc")}
    assert hashes == (expected if signed else {"UNSIGNED-PAYLOAD"})
    assert (boto.get("i"), boto.get("k")) == (b"index", b"abc")
