"""CRC-32C by the address of a C function, and by a callback where there is none."""

from __future__ import annotations

import ctypes

import google_crc32c
import numpy as np
import pytest
from entries import entry
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import decoded_rows

from offload_core.format.codec import crc32c
from offload_hooks.errors import ChecksumError

KINDS = (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8))
PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)


@pytest.fixture
def no_c_function(monkeypatch):
    """The C library has no such function; nothing is remembered before or after."""

    def refuse(*arguments):
        raise OSError("no such library")

    crc32c.crc32c_address.cache_clear()
    monkeypatch.setattr(crc32c.ctypes, "CDLL", refuse)
    yield
    crc32c.crc32c_address.cache_clear()


def by_address(data, seed=0):
    return int(PROTOTYPE(crc32c.crc32c_address())(seed, data, len(data)))


def test_the_checksum_is_castagnolis():
    assert crc32c.crc32c(b"123456789") == by_address(b"123456789") == 0xE3069283
    assert crc32c.crc32c(b"") == by_address(b"") == 0


@pytest.mark.parametrize("kind", KINDS, ids=("bytes", "bytearray", "memoryview", "array"))
@given(data=st.binary(max_size=300), more=st.binary(max_size=20))
def test_any_buffer_has_a_checksum_which_goes_on_from_the_bytes_before(kind, data, more):
    assert crc32c.crc32c(kind(more), crc32c.crc32c(kind(data))) == google_crc32c.value(data + more)


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_the_c_function_is_google_crc32c(data, more):
    assert by_address(data) == google_crc32c.value(data) == crc32c.crc32c(data)
    assert by_address(more, by_address(data)) == google_crc32c.value(data + more)


def test_the_c_library_is_used_here(monkeypatch):
    crc32c.crc32c_address.cache_clear()
    monkeypatch.setattr(crc32c, "_PYTHON_CRC32C", None)
    assert crc32c.crc32c_address() > 0


@pytest.mark.usefixtures("no_c_function")
def test_without_the_c_function_a_callback_serves():
    right = entry(b"payload" * 100)
    broken = right[:-1] + b"?"
    assert by_address(b"123456789") == 0xE3069283
    assert decoded_rows([right, right])[1]["value"] == b"payload" * 100
    with pytest.raises(ChecksumError):
        decoded_rows([right, broken])
