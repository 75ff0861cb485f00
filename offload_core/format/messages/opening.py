"""Entries whose payload cannot be read as it is stored: decrypted, joined, passed on, left out, or an error.

Which of these is up to the options: `CryptoFailureAction` where there is no key, `Mode` where there is one and it does
not fit, and where chunks are missing. This goes entry by entry: entries that are neither encrypted nor chunks never
come here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from offload_core.format.messages.arrays import Bytes, Table
from offload_core.format.messages.chunks import Chunk, ChunkJoiner
from offload_core.format.messages.encryption import CryptoFailureAction, Decryptor, UndecryptableError
from offload_core.format.messages.kernels import fields as f
from offload_core.format.messages.payloads import PayloadPlan
from offload_core.format.messages.schema import Mode
from offload_hooks.errors import DecryptionError, MetadataError, placed
from offload_proto.messages_pb2 import MessageMetadata

_log = logging.getLogger(__name__)

_NAMED_AT_MOST = 20
"""So many messages that cannot be read are named in the log; of more the number is told."""


@dataclass(slots=True, kw_only=True)
class EntryCounts:
    """What became of entries that could not be read as they are stored, or that a consumer would not have seen so.

    Attributes:
        encrypted: entries passed on as ciphertext.
        chunks: chunks passed on one by one.
        no_key: entries left out for want of a key.
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
        """Decide on each entry of the table that is encrypted or a chunk; what can be read goes into the plan.

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
        """The entry's payload, decrypted if need be; None if it is passed on or left out, as the plan then says."""
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
        """Raise, or count, what the joiner has given up.

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
