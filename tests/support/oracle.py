"""Pulsar's own offloaders as judge of bytes: one JVM (`tests/java`) that answers a line of JSON with a line of JSON.

A read of Pulsar's can go on for ever. Each has a deadline; after one that has passed it, the JVM is replaced.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from servers import install
from stores import Store

MANAGED_LEDGER = "acme/cold/persistent/judged"
TOPIC = "persistent://acme/cold/judged"

READ_WITHIN_MS = 20_000

_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio", "java.base/jdk.internal.misc")
_ENTRY = struct.Struct(">qqi")

Entry = tuple[int, int, bytes]
"""Ledger id, entry id, payload."""


class OracleError(Exception):
    """Pulsar raised an exception: its class (`kind`) and `text`; the whole has the Java trace too."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(f"{error['type']}: {error['message']}\n{error['trace']}")
        self.kind = error["type"]
        self.text = error["message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The result of a read handle.

    Attributes:
        entries: all that was read, in the order in which it came.
        counts: for each range that was asked for, how many entries came, or the exception (`type: message`).
        ended: whether every read ended before its deadline.
        last_add_confirmed, length: the ledger's, by the handle.
    """

    entries: list[Entry]
    counts: list[int | str] = field(default_factory=list)
    ended: bool
    last_add_confirmed: int | None
    length: int | None


class Oracle:
    """The JVM, started by the first question; a context manager that ends it.

    Args:
        folder: for entries on their way, and for the log of the JVM.
    """

    def __init__(self, folder: Path) -> None:
        self._java, self._class_path = install.oracle()
        self._folder = folder
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None

    # --- writing -------------------------------------------------------------------------------

    def offload(
        self, store: Store, uuid: UUID, ledger_id: int, payloads: Sequence[bytes], **settings: object
    ) -> None:
        """Write a ledger as a PIP-17 object; `settings` as in broker.conf."""
        entries = [(ledger_id, i, payload) for i, payload in enumerate(payloads)]
        self._write("offload", entries, uuid, tier=tier_of(store), ledger=ledger_id, settings=settings)

    def stream(
        self,
        store: Store,
        uuid: UUID,
        entries: Sequence[Entry],
        *,
        closed: dict[int, dict[str, int]] | None = None,
        part_lengths: bool = True,
        **settings: object,
    ) -> None:
        """Write entries of any ledgers as one streaming object.

        Args:
            closed: ledgers that are closed, by id: `entries`, `size`, `timestamp_ms`.
            part_lengths: give the store each part's length, which Pulsar itself does not.
        """
        more = {"closed": closed or {}, "part_lengths": part_lengths, "settings": settings}
        self._write("stream", entries, uuid, tier=tier_of(store), **more)

    def offload_files(
        self, root: Path, uuid: UUID, ledger_id: int, payloads: Sequence[bytes], **settings: object
    ) -> None:
        """Write a ledger as a MapFile under `root`; `settings` as in Hadoop's configuration, with `_` for `.`."""
        entries = [(ledger_id, i, payload) for i, payload in enumerate(payloads)]
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._write("offload_files", entries, uuid, uri=f"file://{root}", ledger=ledger_id, settings=named)

    # --- reading -------------------------------------------------------------------------------

    def read(
        self,
        store: Store,
        attempt: UUID | bytes,
        ledger_id: int,
        ranges: Iterable[tuple[int, int]],
        *,
        deadline_ms: int = READ_WITHIN_MS,
        **settings: object,
    ) -> Read:
        """Read ranges (first and last entry id) of a ledger, of an attempt or by the bytes of its offload context."""
        which = {"context": attempt.hex()} if isinstance(attempt, bytes) else {"uuid": str(attempt)}
        more = {"tier": tier_of(store), "ledger": ledger_id, "settings": settings, **which}
        return self._read("read", ranges, deadline_ms, **more)

    def read_files(
        self,
        root: Path,
        uuid: UUID,
        ledger_id: int,
        ranges: Iterable[tuple[int, int]],
        *,
        managed_ledger: str = MANAGED_LEDGER,
    ) -> Read:
        """Read ranges of a ledger that lies as a MapFile under `root`."""
        more = {"uri": f"file://{root}", "uuid": str(uuid), "managed_ledger": managed_ledger}
        return self._read("read_files", ranges, READ_WITHIN_MS, ledger=ledger_id, **more)

    def parse(self, kind: str, record: bytes) -> dict[str, Any]:
        """A `ManagedLedgerInfo` or an `OffloadContext` as Pulsar's generated class reads it, by the fields' names."""
        return self.ask("parse", type=kind, hex=record.hex())["record"]

    # --- records in a ZooKeeper ------------------------------------------------------------------

    def read_record(self, url: str, name: str) -> dict[str, Any]:
        """A managed ledger's record as a broker reads it, whose `metadataStoreUrl` this is; as `parse`."""
        return self.ask("read_record", url=url, name=name)["record"]

    def update_record(self, url: str, name: str, record: bytes, compression: str) -> None:
        """Replace a record as a broker does, with this `managedLedgerInfoCompressionType`."""
        self.ask("update_record", url=url, name=name, hex=record.hex(), compression=compression)

    def managed_ledger_names(self, topics: Sequence[str]) -> list[str]:
        """The names of topics' managed ledgers."""
        return self.ask("managed_ledger_names", topics=list(topics))["names"]

    # --- the JVM -------------------------------------------------------------------------------

    def ask(self, command: str, **request: Any) -> dict[str, Any]:
        """One question and its answer; raises `OracleError`."""
        process = self._running()
        process.stdin.write(json.dumps({"command": command, **request}).encode() + b"\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line(process))
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer

    def stop(self) -> None:
        """End the JVM at once, if it runs; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self, command: str, entries: Sequence[Entry], uuid: UUID, **request: Any) -> None:
        path = self.save(entries)
        self.ask(command, entries=str(path), uuid=str(uuid), managed_ledger=MANAGED_LEDGER, **request)
        path.unlink()

    def save(self, entries: Iterable[Entry]) -> Path:
        """A file of entries as the JVM takes them."""
        path = self._folder / f"entries-{next(self._numbers)}"
        with path.open("wb") as file:
            for ledger_id, entry_id, payload in entries:
                file.write(_ENTRY.pack(ledger_id, entry_id, len(payload)) + payload)
        return path

    def _read(
        self, command: str, ranges: Iterable[tuple[int, int]], deadline_ms: int, **request: Any
    ) -> Read:
        into = self._folder / f"entries-{next(self._numbers)}"
        places = {"ranges": list(ranges), "into": str(into), "deadline_ms": deadline_ms}
        answer = self.ask(command, **{"managed_ledger": MANAGED_LEDGER, **places, **request})
        if not answer["ended"]:
            self.stop()
        data = into.read_bytes()
        into.unlink()
        return Read(
            entries=list(_parse(data)),
            counts=[_outcome(outcome) for outcome in answer.get("ranges", ())],
            ended=answer["ended"],
            last_add_confirmed=answer.get("last_add_confirmed"),
            length=answer.get("length"),
        )

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            options = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
            options += ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self._java), *options, "-cp", self._class_path, "oracle.Oracle"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                )
        return self._process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        deadline = time.monotonic() + 240
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready = left > 0 and wait([process.stdout.fileno()], left)
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                self.stop()
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
                raise AssertionError(f"the oracle gave no answer{' in time' if not ready else ''}:\n{tail}")
            line += part
        return line

    @property
    def _log(self) -> Path:
        return self._folder / "oracle.log"


def tier_of(store: Store) -> dict[str, object]:
    """A store, a folder or a whole bucket on S3, as the JVM opens it."""
    if store.name == "local":
        return {"folder": store.url}
    names = {"region": "region", "access_key": "access_key_id", "secret_key": "secret_access_key"}
    options = {name: store.options[option] for name, option in names.items()}
    return {"endpoint": store.endpoint, "bucket": store.url.removeprefix("s3://"), **options}


def _outcome(outcome: dict[str, Any]) -> int | str:
    if not outcome:
        return "never ended"
    if "error" in outcome:
        return f"{outcome['error']['type']}: {outcome['error']['message']}"
    return outcome["entries"]


def _parse(data: bytes) -> Iterable[Entry]:
    position = 0
    while position < len(data):
        ledger_id, entry_id, length = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        yield ledger_id, entry_id, data[position : position + length]
        position += length
