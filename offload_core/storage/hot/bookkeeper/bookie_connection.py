"""One TCP connection to a bookie: TLS and login if there are any, then reads.

A connection is used by one thread at a time. Requests go out in one piece; answers are received into one buffer,
checked and placed by kernels. After an error a connection is of no use any more, since answers may be on their way.
Every wait ends at a deadline (of `time.monotonic`).
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes
from offload_core.format.codec.bookkeeper.bookie_frames import (
    BATCH_HEAD_BYTES,
    LAST_ENTRY,
    MAX_FRAME_BYTES,
    AuthAnswer,
    BookieCode,
    ReadAnswer,
    pack_auth,
    pack_batch_read,
    pack_read,
    pack_reads,
    parse_batch_head,
    parse_frame,
)
from offload_core.format.codec.bookkeeper.digests import EntryDigest, StoredEntry
from offload_core.format.codec.bookkeeper.kernels.stored_entries import (
    BAD_BYTES,
    NOT_ANSWERED,
    find_answers,
    find_in_batch,
)
from offload_core.format.codec.bookkeeper.ledger_nodes import BookieAddress
from offload_core.format.codec.bookkeeper.protobuf_frames import (
    OK,
    pack_login,
    pack_long_poll,
    pack_start_tls,
    parse_response,
)
from offload_core.storage.hot.bookkeeper.logins import SaslLogin
from offload_hooks.errors import (
    AccessDeniedError,
    BadLengthError,
    FormatError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    placed,
)
from offload_proto.bookie_pb2 import Response

_KEPT_BYTES = 8 << 20
"""A larger buffer is given back after use."""

_LENGTH = struct.Struct(">i")
NOT_ASKED = -3
"""In place of a bookie's code."""

_LOGIN_WAIT_S = 10.0
"""For each step of a login: a bookie that refuses it need not say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSecurity:
    """TLS and login of all connections to bookies; None for none."""

    tls: ssl.SSLContext | None = field(default=None, repr=False)
    login: SaslLogin | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntries:
    """Stored entries in a window; their digests are not checked yet.

    Attributes:
        codes: the answer for each entry (`BookieCode`), int32.
        offsets, lengths: where its bytes are in the window, int64; only where the code is OK.
    """

    window: Bytes
    codes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


class BookieConnection:
    """A connection to one bookie, which is made at once.

    Attributes:
        is_new: whether it has answered nothing yet.
        is_usable: whether every answer has been received as a whole.

    Args:
        place: the bookie, for errors.
        polls: whether it is for long polls only, which speak another version of the protocol.
        deadline: for connecting and the login.

    Raises:
        AccessDeniedError: the bookie wants another kind of login.
        StoreUnavailableError, StoreTimeoutError, StoreError: no connection comes about.
    """

    def __init__(
        self,
        place: str,
        address: BookieAddress,
        security: BookieSecurity,
        *,
        polls: bool = False,
        deadline: float,
    ) -> None:
        self.place = place
        self._polls = polls
        self.is_new, self.is_usable = True, False
        self._numbers = itertools.count(1)
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        with self._translated():
            self._socket = socket.create_connection((address.host, address.port), timeout=_left(deadline))
        try:
            with self._translated():
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._start_tls(security.tls, address.host, deadline)
            if security.login is not None:
                self._log_in(security.login, address.host, deadline)
            self.is_usable = True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it."""
        self.is_usable = False
        self._socket.close()

    # --- reads ---------------------------------------------------------------------------------

    def read_batch(
        self, ledger_id: int, first_entry_id: int, *, max_count: int, max_bytes: int, deadline: float
    ) -> BookieCode | FoundEntries:
        """Read entries that follow one another, at least one: as many as the limits and the bookie allow.

        Args:
            max_bytes: of the answer.

        Returns:
            The entries, in a window that the next call writes over; or the bookie's code why there are none.

        Raises:
            FormatError: what the bookie sends is no answer to this.
            StoreUnavailableError, StoreTimeoutError: the connection is lost, or the bookie does not answer.
        """
        number = next(self._numbers)
        self._send(
            pack_batch_read(
                ledger_id, first_entry_id, request_id=number, max_count=max_count, max_bytes=max_bytes
            ),
            deadline,
        )
        frame = self._receive(deadline)
        with placed(key=self.place, ledger_id=ledger_id, entry_id=first_entry_id):
            head = parse_batch_head(frame.data)
            asked, found = (
                (ledger_id, first_entry_id, number),
                (head.ledger_id, head.first_entry_id, head.request_id),
            )
            if asked != found:
                raise FormatError("a bookie answers something else", expected=asked, found=found)
            self._is_answered()
            if head.code != BookieCode.OK:
                return BookieCode.of(head.code)
            room = min(max_count, len(frame) // 4)
            offsets, lengths = np.empty(room, np.int64), np.empty(room, np.int64)
            status, count = find_in_batch(frame, BATCH_HEAD_BYTES, len(frame), offsets, lengths)
            if status == BAD_BYTES:
                parse_frame(frame.data)
                raise AssertionError("the kernel and its reference implementation differ")
            if not count:
                raise FormatError("a bookie answers with no entry", expected="one at least")
        return FoundEntries(
            window=frame, codes=np.zeros(count, np.int32), offsets=offsets[:count], lengths=lengths[:count]
        )

    def send_reads(self, ledger_id: int, entry_ids: npt.NDArray[np.int64], deadline: float) -> None:
        """Ask for single entries, in one piece; `receive_reads` receives them. Errors as `read_batch`."""
        self._send(pack_reads(ledger_id, entry_ids), deadline)

    def receive_reads(
        self, ledger_id: int, entry_ids: npt.NDArray[np.int64], *, expected_bytes: int, deadline: float
    ) -> FoundEntries:
        """Receive the entries that were asked for, in a window of their own.

        Args:
            entry_ids: as `send_reads`, ascending.
            expected_bytes: of all answers together, a guess.

        Returns:
            One code for each entry from the first of them to the last, `NOT_ASKED` where it was not asked for.

        Raises:
            FormatError: an answer to something else.
            StoreUnavailableError, StoreTimeoutError: as `read_batch`.
        """
        first, count, missing = int(entry_ids[0]), int(entry_ids[-1] - entry_ids[0]) + 1, len(entry_ids)
        found = FoundEntries(
            window=np.empty(0, np.uint8),
            codes=np.full(count, NOT_ASKED, np.int32),
            offsets=np.zeros(count, np.int64),
            lengths=np.zeros(count, np.int64),
        )
        found.codes[entry_ids - first] = NOT_ANSWERED
        window: npt.NDArray[np.uint8] = np.empty(max(expected_bytes, 4096), np.uint8)
        at = end = 0
        while True:
            if end == len(window):
                window = np.concatenate([window, np.empty(len(window), np.uint8)])
            end += self._receive_some(window.data[end:], deadline)
            status, at, answered = find_answers(
                window, at, end, ledger_id, first, MAX_FRAME_BYTES, found.codes, found.offsets, found.lengths
            )
            missing -= answered
            if status == BAD_BYTES or missing < 0:
                raise FormatError(
                    "a bookie answers something else", key=self.place, ledger_id=ledger_id, offset=int(at)
                )
            if not missing:
                break
        if at == end:
            self._is_answered()
        return FoundEntries(window=window, codes=found.codes, offsets=found.offsets, lengths=found.lengths)

    def read_last(self, ledger_id: int, digest: EntryDigest, deadline: float) -> BookieCode | StoredEntry:
        """Read the last entry that the bookie has of a ledger, or its code if there is none; errors as `read_batch`."""
        self._send(pack_read(ledger_id, LAST_ENTRY), deadline)
        with placed(key=self.place, ledger_id=ledger_id):
            answer = parse_frame(memoryview(self._receive(deadline).tobytes()))
            asked = (ledger_id, LAST_ENTRY)
            if not isinstance(answer, ReadAnswer) or (answer.ledger_id, answer.entry_id) != asked:
                raise FormatError("a bookie answers something else", expected="the last entry")
            self._is_answered()
            if answer.code != BookieCode.OK:
                return BookieCode.of(answer.code)
            return digest.parse(answer.stored, ledger_id, None)

    def wait_for_entry(
        self, ledger_id: int, last_add_confirmed: int, *, timeout_s: float, deadline: float
    ) -> None:
        """Wait until an entry after `last_add_confirmed` is confirmed, or the time is over.

        Of a connection that `polls`. Errors as `read_batch`; `StoreUnavailableError` also where the bookie has nothing
        of the ledger.
        """
        number = next(self._numbers)
        self._send(pack_long_poll(ledger_id, last_add_confirmed, int(timeout_s * 1000), number), deadline)
        response = self._receive_response(number, deadline)
        if response.status != OK:
            raise StoreUnavailableError(
                "a bookie cannot wait for an entry",
                key=self.place,
                ledger_id=ledger_id,
                found=response.status,
            )

    # --- security ------------------------------------------------------------------------------

    def _start_tls(self, tls: ssl.SSLContext, host: str, deadline: float) -> None:
        number = next(self._numbers)
        self._send(pack_start_tls(number), deadline)
        response = self._receive_response(number, deadline)
        if response.status != OK:
            raise StoreError(
                "a bookie does not speak TLS",
                key=self.place,
                found=response.status,
                hint="Leave the option 'tls' out, or configure the bookie's tlsProvider.",
            )
        self._socket.settimeout(_left(deadline))
        with self._translated():
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)

    def _log_in(self, login: SaslLogin, host: str, deadline: float) -> None:
        with placed(key=self.place):
            steps = login.begin(host)
            step = steps(None)
            while step is not None:
                try:
                    answer = self._step(login.plugin, step, min(deadline, time.monotonic() + _LOGIN_WAIT_S))
                except StoreUnavailableError as error:
                    raise type(error)(
                        "a bookie does not answer a login",
                        hint="It may have refused it, which it does without a word; its log says why.",
                    ) from error
                if answer.plugin != login.plugin:
                    raise AccessDeniedError(
                        "a bookie wants another login, or none",
                        expected=login.plugin,
                        found=ascii(answer.plugin),
                    )
                step = steps(answer.payload)

    def _step(self, plugin: str, payload: bytes, deadline: float) -> AuthAnswer:
        """One step of a login, in the version that the connection is to speak: the first frame decides that."""
        if self._polls:
            number = next(self._numbers)
            self._send(pack_login(plugin, payload, number), deadline)
            response = self._receive_response(number, deadline)
            if response.status != OK:
                raise AccessDeniedError("a bookie refuses a login", found=response.status)
            message = response.authResponse
            return AuthAnswer(plugin=message.authPluginName, payload=message.payload)
        self._send(pack_auth(plugin, payload), deadline)
        answer = parse_frame(self._receive(deadline).data)
        if not isinstance(answer, AuthAnswer):
            raise FormatError("a bookie answers something else", expected="a step of the login")
        return answer

    # --- bytes ---------------------------------------------------------------------------------

    def _send(self, data: bytes, deadline: float) -> None:
        self.is_usable = False
        self._socket.settimeout(_left(deadline))
        with self._translated():
            self._socket.sendall(data)

    def _receive(self, deadline: float) -> npt.NDArray[np.uint8]:
        """The next frame, with its length, in the buffer."""
        if len(self._buffer) > _KEPT_BYTES or not len(self._buffer):
            self._buffer = np.empty(1 << 16, np.uint8)
        received, size = 0, _LENGTH.size
        while received < size:
            received += self._receive_some(self._buffer.data[received:size], deadline)
            if received == _LENGTH.size:
                size = received + self._length(self._buffer)
                if size > len(self._buffer):
                    self._buffer = np.concatenate(
                        [self._buffer[:received], np.empty(size - received, np.uint8)]
                    )
        return self._buffer[:size]

    def _is_answered(self) -> None:
        """What was asked has been answered, and nothing else is on its way."""
        self.is_usable, self.is_new = True, False

    def _length(self, begin: npt.NDArray[np.uint8]) -> int:
        (length,) = _LENGTH.unpack_from(begin.data)
        if not 0 < length <= MAX_FRAME_BYTES:
            raise BadLengthError(
                "what answers is not a bookie, or a frame has a length that is none",
                key=self.place,
                expected=f"1 to {MAX_FRAME_BYTES}",
                found=length,
            )
        return int(length)

    def _receive_response(self, number: int, deadline: float) -> Response:
        with placed(key=self.place):
            response = parse_response(self._receive(deadline)[_LENGTH.size :].tobytes())
            if response.header.txnId != number:
                raise FormatError(
                    "a bookie answers something else", expected=number, found=response.header.txnId
                )
            return response

    def _receive_some(self, room: memoryview, deadline: float) -> int:
        self._socket.settimeout(_left(deadline))
        with self._translated():
            received = self._socket.recv_into(room)
        if not received:
            raise StoreUnavailableError("a bookie closed the connection", key=self.place)
        return received

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise StoreTimeoutError("a bookie does not answer in time", key=self.place) from error
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                "a bookie's certificate cannot be verified",
                key=self.place,
                found=error.verify_message,
                hint="The option 'ca_bundle' names the certificates to believe.",
            ) from error
        except (OSError, ValueError) as error:  # a name that is none is a ValueError
            raise StoreUnavailableError(
                "the connection to a bookie is lost, or does not come about",
                key=self.place,
                found=getattr(error, "strerror", None) or type(error).__name__,
            ) from error


def _left(deadline: float) -> float:
    """Seconds until a deadline, of which there is always a little: a timeout of 0 means another thing to a socket."""
    return max(0.001, deadline - time.monotonic())
