"""What stands in a ledger file around its entries, read by descriptor: the pages before them, the footer behind."""

from __future__ import annotations

import os
from dataclasses import dataclass

from offload_core.ledgers.boot import boot_identity
from offload_core.ledgers.files import read_up_to
from offload_core.ledgers.frames import ledger_seed
from offload_core.ledgers.layout import (
    FRAMES_OFFSET,
    MAX_FOOTER_BYTES,
    PAGE_BYTES,
    Footer,
    Header,
    Mark,
    State,
    newest_state,
    parse_footer,
    parse_header,
)
from offload_hooks.errors import UnknownLedgerError
from offload_hooks.ledger_stores import LedgerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What stands before a ledger's first entry."""

    header: Header
    state: State

    @property
    def trusted(self) -> Mark:
        """Up to where all must be whole: what was acknowledged, while the machine runs on; then what was durable."""
        state = self.state
        runs_on = state.boot != 0 and state.boot == boot_identity()
        return state.acknowledged if state.sealed or runs_on else state.durable

    @property
    def status(self) -> LedgerStatus:
        """The ledger for readers."""
        return LedgerStatus(
            ledger_id=self.header.ledger_id,
            entry_count=self.trusted.entry_count,
            size_bytes=self.trusted.size_bytes,
            sealed=self.state.sealed,
            created_at_ms=self.header.created_at_ms,
            custom_metadata=self.header.custom_metadata,
        )


def read_pages(descriptor: int, ledger_id: int) -> Pages:
    """The pages of a ledger's file.

    Raises:
        UnknownLedgerError: the file was deleted.
        FormatError: they are damaged.
    """
    if os.fstat(descriptor).st_nlink == 0:
        raise UnknownLedgerError("the ledger was deleted", ledger_id=ledger_id)
    data = read_up_to(descriptor, FRAMES_OFFSET, 0)
    header = parse_header(data[:PAGE_BYTES], ledger_id)
    return Pages(header=header, state=newest_state(data, ledger_seed(ledger_id)))


def read_footer(descriptor: int, state: State) -> Footer:
    """The footer of a sealed ledger; `FormatError` if it is damaged, or something follows it."""
    offset = state.acknowledged.offset
    return parse_footer(read_up_to(descriptor, MAX_FOOTER_BYTES + 1, offset), offset, state)
