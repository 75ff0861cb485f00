"""Payloads on their way out of entries: read where they are stored, decompressed, decrypted, joined, or left out.

`survey_payloads` decides for each entry of a run. Many compressed payloads are decompressed by one call that leaves
the interpreter's lock to other threads. It calls C functions by address: of LZ4 in the compiled module of the package
`lz4`, of zstd in that of `zstandard`, of libdeflate as `codec.kernels.c_functions` finds it. Where a build hides one,
for Snappy, which no package shows, and where a function refuses, `compression.decompress_into` takes payloads one by
one.

`PayloadOpener` takes encrypted entries and chunks, one by one: decrypted, joined, passed on, left out, or an error.
That is up to the options: `CryptoFailureAction` where there is no key, `Mode` where a key does not fit or chunks are
missing.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from offload_core.format.codec.kernels.c_functions import Decompressor, function_address, inflate_address
from offload_core.format.messages.arrow_arrays import Bytes, Table
from offload_core.format.messages.chunks import Chunk, ChunkJoiner
from offload_core.format.messages.compression import decompress_into
from offload_core.format.messages.encryption import CryptoFailureAction, Decryptor, UndecryptableError
from offload_core.format.messages.kernels import batches
from offload_core.format.messages.kernels import decompression as kernels
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.message_columns import Mode
from offload_hooks.errors import DecryptionError, MetadataError, OffloadError, placed
from offload_proto.messages_pb2 import MessageMetadata

Numbers = npt.NDArray[np.int64]

LEFT_ALONE = -1
"""Stands for the codec of a payload that is not in the block."""


def decompress_payloads(
    block: Bytes,
    starts: Numbers,
    lengths: Numbers,
    codecs: Numbers,
    scratch: Bytes,
    places: Numbers,
    sizes: Numbers,
) -> Numbers:
    """Decompress payloads of `block` into `scratch` (uint8), as many as can be.

    Per payload: its bytes in `block`, its codec (`Compression`, or `LEFT_ALONE`), its place in `scratch`, and the bytes
    that it declares to become. Answers the indices of those that are left to the caller, in order.
    """
    left = np.empty(len(starts), dtype=np.int64)
    memory = _memory_of_thread()
    count = kernels.decompress(
        memory.functions, block, starts, lengths, codecs, scratch, places, sizes, memory.counts, left
    )
    return left[:count]


class _Memory:
    """The functions' addresses, and their working memory; for one thread at a time."""

    def __init__(self) -> None:
        self._inflater = Decompressor()
        self.counts = np.empty(2, dtype=np.uint64)
        self.functions = np.zeros(kernels.FUNCTIONS, dtype=np.uint64)
        self.functions[kernels.ZLIB_ADDRESS] = inflate_address()
        self.functions[kernels.ZLIB_STATE] = self._inflater.address
        if (lz4 := _lz4()) is not None:
            self.functions[kernels.LZ4_ADDRESS] = function_address(lz4.LZ4_decompress_safe)
        if (zstd := _zstd()) is not None and (state := zstd.ZSTD_createDCtx()):
            weakref.finalize(self, zstd.ZSTD_freeDCtx, state)
            self.functions[kernels.ZSTD_STATE] = state
            self.functions[kernels.ZSTD_ADDRESS] = function_address(zstd.ZSTD_decompressDCtx)


_threads = threading.local()


def _memory_of_thread() -> _Memory:
    memory: _Memory | None = getattr(_threads, "memory", None)
    if memory is None:
        memory = _threads.memory = _Memory()
    return memory


@functools.cache
def _lz4() -> ctypes.CDLL | None:
    return _library("lz4.block._block", "LZ4_decompress_safe")


@functools.cache
def _zstd() -> ctypes.CDLL | None:
    library = _library("zstandard._cffi", "ZSTD_decompressDCtx", "ZSTD_createDCtx", "ZSTD_freeDCtx")
    if library is not None:
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
    return library


def _library(module: str, *functions: str) -> ctypes.CDLL | None:
    """The compiled module of that name, if it shows all these functions.

    It is searched for in its package, not among the loaded modules: another thread may be importing it.
    """
    try:
        package = import_module(module.rpartition(".")[0])
        found = PathFinder.find_spec(module, package.__path__)
        if found is None or found.origin is None:
            return None
        library = ctypes.CDLL(found.origin)
        for name in functions:
            getattr(library, name)
    except (ImportError, OSError, AttributeError):
        return None
    return library


@dataclass(slots=True, kw_only=True)
class PayloadPlan:
    """Per entry of a table: the action for its payload.

    Attributes:
        treatment: uint8, `READ`, `PASS_ON` or `LEAVE_OUT` (`kernels.fields`).
        in_scratch: uint8, whether it is read from scratch memory.
        sizes: int64, its bytes as it will be read.
        opened: what payloads became by decryption or by joining chunks, by the entry's row.
        first_chunks: ledger and entry of the first chunk of a message that was joined, by the row of its last.
        encrypted, chunks, transactional: how many of each there are.
    """

    treatment: Bytes
    in_scratch: Bytes
    sizes: npt.NDArray[np.int64]
    opened: dict[int, bytes] = field(default_factory=dict)
    first_chunks: dict[int, tuple[int, int]] = field(default_factory=dict)
    encrypted: int
    chunks: int
    transactional: int
    any_in_scratch: bool

    def open(self, row: int, payload: bytes, table: Table) -> None:
        """The payload of this entry is read from now on."""
        is_compressed = table[row, f.E_COMPRESSION] != 0
        self.treatment[row] = f.READ
        self.in_scratch[row] = 1
        self.sizes[row] = table[row, f.E_UNCOMPRESSED_SIZE] if is_compressed else len(payload)
        self.opened[row] = payload
        self.any_in_scratch = True

    def too_large(self, most: int) -> int | None:
        """The first entry whose payload declares no size to decompress to, or more than `most` bytes; None if none."""
        if not self.any_in_scratch:
            return None
        rows = np.flatnonzero((self.in_scratch != 0) & ((self.sizes < 0) | (self.sizes > most)))
        return int(rows[0]) if len(rows) else None


def survey_payloads(table: Table) -> PayloadPlan:
    """Decide by the metadata alone: encrypted entries and chunks are passed on unchanged."""
    count = len(table)
    sizes = np.empty(count, dtype=np.int64)
    in_scratch, treatment = np.empty(count, dtype=np.uint8), np.empty(count, dtype=np.uint8)
    encrypted, chunks, transactional, compressed = batches.survey_entries(table, sizes, in_scratch, treatment)
    return PayloadPlan(
        treatment=treatment,
        in_scratch=in_scratch,
        sizes=sizes,
        encrypted=encrypted,
        chunks=chunks,
        transactional=transactional,
        any_in_scratch=compressed > 0,
    )


class WrongPayloadError(Exception):
    """Carries the row of an entry that does not decompress to the place that explains it."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def fill_scratch(
    block: Bytes, table: Table, plan: PayloadPlan, first: int, last: int, room: Callable[[int], Bytes]
) -> tuple[Bytes | None, npt.NDArray[np.int64]]:
    """Decompress payloads of the entries `first` … `last` − 1 one after another, and copy the opened ones.

    `room` gives a buffer of at least the size asked. Answers it (None if nothing was to be done), and each entry's
    place in it or −1.

    Raises:
        WrongPayloadError: a payload does not decompress.
    """
    places = np.full(len(table), -1, dtype=np.int64)
    chosen = np.flatnonzero(plan.in_scratch[first:last]) + first
    if len(chosen) == 0:
        return None, places
    ends = np.cumsum(plan.sizes[chosen])
    scratch = room(int(ends[-1]))
    places[chosen] = ends - plan.sizes[chosen]
    starts, lengths = table[chosen, f.E_PAYLOAD], table[chosen, f.E_PAYLOAD_LENGTH]
    codecs = table[chosen, f.E_COMPRESSION]
    if plan.opened:
        codecs[np.isin(chosen, list(plan.opened))] = LEFT_ALONE
    sizes = plan.sizes[chosen]
    left = decompress_payloads(block, starts, lengths, codecs, scratch, places[chosen], sizes)
    for i in left.tolist():
        row, start, end = int(chosen[i]), int(starts[i]), int(ends[i])
        codec, opened = int(table[row, f.E_COMPRESSION]), plan.opened.get(row)
        out = scratch[end - int(sizes[i]) : end]
        try:
            if codec == 0 and opened is not None:
                out[:] = np.frombuffer(opened, dtype=np.uint8)
            else:
                stored = block[start : start + int(lengths[i])]
                payload = stored if opened is None else np.frombuffer(opened, dtype=np.uint8)
                decompress_into(codec, payload, out)
        except OffloadError as error:
            raise WrongPayloadError(row) from error
    return scratch, places


_log = logging.getLogger(__name__)

_NAMED_AT_MOST = 20
"""Most messages that cannot be read and are named in the log; of more only the number is logged."""


@dataclass(slots=True, kw_only=True)
class EntryCounts:
    """Counts of entries that were passed on as stored, or left out, as they could not be decrypted or joined.

    Attributes:
        encrypted: entries passed on as ciphertext.
        chunks: chunks passed on one by one.
        no_key: entries left out as there was no key.
        undecryptable: entries passed on or left out that do not decrypt.
        incomplete: chunked messages left out that are not complete.
    """

    encrypted: int = 0
    chunks: int = 0
    no_key: int = 0
    undecryptable: int = 0
    incomplete: int = 0


class PayloadOpener:
    """Decrypts the payloads of one topic's entries, and joins its chunks.

    Args:
        decryptor: has the keys; None if there are none.
        crypto_failure_action: what becomes of an entry for which there is no key.
        mode: what becomes of one whose key does not fit or whose bytes were changed, and of incomplete messages.
        joiner: joins the topic's chunks; None passes them on one by one, as stored.
    """

    def __init__(
        self,
        *,
        decryptor: Decryptor | None = None,
        crypto_failure_action: CryptoFailureAction = "CONSUME",
        mode: Mode = "FAILFAST",
        joiner: ChunkJoiner | None = None,
    ) -> None:
        self._decryptor = Decryptor(None) if decryptor is None else decryptor
        self._action = crypto_failure_action
        self._mode = mode
        self.joiner = joiner
        self.counts = EntryCounts()

    def open(
        self, block: Bytes, table: Table, plan: PayloadPlan, ledger_id: int, entry_ids: npt.NDArray[np.int64]
    ) -> None:
        """Decide on each entry of the table that is encrypted or a chunk; readable payloads go into the plan.

        Raises:
            DecryptionError, IncompleteMessageError, BadLengthError, MetadataError: with ledger and entry.
        """
        if self.joiner is not None:
            self.joiner.passed(int(table[:, f.E_PAYLOAD_LENGTH].sum()))
        if not plan.encrypted and not plan.chunks:
            return
        rows = np.flatnonzero(plan.treatment == f.PASS_ON)
        if self.joiner is None:
            is_chunk = table[rows, f.E_CHUNKS] > 1
            self.counts.chunks += int(is_chunk.sum())
            rows = rows[~is_chunk]
        if self._action == "CONSUME" and not self._decryptor.has_keys:
            is_encrypted = table[rows, f.E_ENCRYPTION_KEYS] > 0
            self.counts.encrypted += int(is_encrypted.sum())
            rows = rows[~is_encrypted]
        for row in rows.tolist():
            entry_id = int(entry_ids[row])
            with placed(ledger_id=ledger_id, entry_id=entry_id):
                self._open_row(block, table, plan, row, ledger_id, entry_id)

    def _open_row(
        self, block: Bytes, table: Table, plan: PayloadPlan, row: int, ledger_id: int, entry_id: int
    ) -> None:
        payload = self._payload(block, table[row], plan, row)
        if payload is None:
            return
        if self.joiner is None or table[row, f.E_CHUNKS] <= 1:
            plan.open(row, payload, table)
            return
        whole = self.joiner.add(_chunk(block, table[row], payload, ledger_id, entry_id))
        self.report_incomplete()
        if whole is None:
            plan.treatment[row] = f.LEAVE_OUT
        else:
            plan.open(row, whole.payload, table)
            plan.first_chunks[row] = whole.first

    def _payload(
        self, block: Bytes, entry: npt.NDArray[np.int64], plan: PayloadPlan, row: int
    ) -> bytes | None:
        """The entry's payload, decrypted if need be; None if it is passed on or left out, as the plan then has it."""
        stored = _span(block, entry, f.E_PAYLOAD)
        if not entry[f.E_ENCRYPTION_KEYS]:
            return stored
        try:
            return self._decryptor.decrypt(_metadata(block, entry), stored)
        except UndecryptableError as undecryptable:
            if undecryptable.no_key:
                fails, leaves_out = self._action == "FAIL", self._action == "DISCARD"
            else:
                fails, leaves_out = self._mode == "FAILFAST", self._mode == "DROPMALFORMED"
            if fails:
                raise undecryptable.error from None
            if not undecryptable.no_key:
                self.counts.undecryptable += 1
                self._name(undecryptable.error, self.counts.undecryptable)
            elif leaves_out:
                self.counts.no_key += 1
            if leaves_out:
                plan.treatment[row] = f.LEAVE_OUT
            else:
                self.counts.encrypted += 1
            return None

    def report_incomplete(self) -> None:
        """Raise the error of messages that the joiner has abandoned, or count them.

        Raises:
            IncompleteMessageError: in the mode FAILFAST.
        """
        if self.joiner is None:
            return
        given_up, self.joiner.incomplete = self.joiner.incomplete, []
        for error in given_up:
            if self._mode == "FAILFAST":
                raise error
            self.counts.incomplete += 1
            self._name(error, self.counts.incomplete)

    def chunks_of(
        self, block: Bytes, table: Table, plan: PayloadPlan, ledger_id: int, entry_ids: npt.NDArray[np.int64]
    ) -> list[Chunk]:
        """The chunks among the entries of a table, in order; those that do not decrypt are left out."""
        chunks = []
        for row in np.flatnonzero((plan.treatment == f.PASS_ON) & (table[:, f.E_CHUNKS] > 1)).tolist():
            payload = _span(block, table[row], f.E_PAYLOAD)
            if table[row, f.E_ENCRYPTION_KEYS]:
                try:
                    payload = self._decryptor.decrypt(_metadata(block, table[row]), payload)
                except UndecryptableError:
                    continue
            chunks.append(_chunk(block, table[row], payload, ledger_id, int(entry_ids[row])))
        return chunks

    def _name(self, error: DecryptionError | Exception, count: int) -> None:
        if self._mode == "PERMISSIVE" and count <= _NAMED_AT_MOST:
            _log.warning("%s", error)


def _chunk(
    block: Bytes, entry: npt.NDArray[np.int64], payload: bytes, ledger_id: int, entry_id: int
) -> Chunk:
    producer, uuid = _span(block, entry, f.E_PRODUCER), _span(block, entry, f.E_UUID)
    return Chunk(
        key=(producer.decode(errors="replace"), uuid.decode(errors="replace")),
        chunk_id=int(entry[f.E_CHUNK_ID]),
        count=int(entry[f.E_CHUNKS]),
        ledger_id=ledger_id,
        entry_id=entry_id,
        payload=payload,
    )


def _span(block: Bytes, entry: npt.NDArray[np.int64], field: int) -> bytes:
    """The bytes of a span of an entry's row, whose length stands in the next field; empty if it is not there."""
    start, length = int(entry[field]), max(int(entry[field + 1]), 0)
    return block[start : start + length].tobytes()


def _metadata(block: Bytes, entry: npt.NDArray[np.int64]) -> MessageMetadata:
    stored = block[entry[f.E_METADATA] : entry[f.E_METADATA_END]].tobytes()
    try:
        metadata = MessageMetadata.FromString(stored)
    except DecodeError as error:
        raise MetadataError(f"an entry's metadata cannot be parsed: {error}") from error
    if not metadata.IsInitialized():
        raise MetadataError("an encryption key lacks its name or value")
    return metadata
