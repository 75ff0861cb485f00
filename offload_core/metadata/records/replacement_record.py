"""Copies that a record names beside the one that is read: to take its place, or replaced by it.

They stand in the driver metadata of the ledger's offload context as two properties, which Pulsar keeps and passes over:
`pulsar-offload.replacement`, a JSON object, while another copy is under way, and `pulsar-offload.replaced`, a list of
such objects, until theirs are deleted. A copy of several ledgers stands with each of them. Source:
docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from offload_core.metadata.records.attempts import status_of
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    AttemptStatus,
    DriverMetadata,
)
from offload_hooks.errors import AttemptError, MetadataError, placed
from offload_hooks.json_text import JsonObject, read_json


class CopyForm(enum.Enum):
    """Form of a copy's objects, which their keys are made of."""

    LEDGER = "ledger"
    """One whole ledger: `<uuid>-ledger-<id>`, or a MapFile if the driver is `filesystem`."""
    SEGMENT = "segment"
    """A run of entries of any ledgers: `<uuid>`."""


class OtherRole(enum.Enum):
    """Role of a copy that is named and not read."""

    REPLACEMENT = "replacement"
    """It is being written, to take the place of the one that is read; or was abandoned."""
    REPLACED = "replaced"
    """Another one took its place; its objects may still be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCopy:
    """A copy that a record names beside the one that is read.

    Attributes:
        driver: which driver wrote it, and where to; of a replacement, with the lease and status of its attempt.
        since_ms: when it was begun; of one that was replaced, when that was. Milliseconds since 1970, UTC.
        segment: of a replacement, the segment that it is to take the place of; None for all copies of its ledgers.
        ledger_ids: the ledgers whose records name it, ascending.
    """

    role: OtherRole
    uuid: UUID
    form: CopyForm
    driver: DriverMetadata
    since_ms: int
    segment: UUID | None = None
    ledger_ids: tuple[int, ...]

    @property
    def is_abandoned(self) -> bool:
        """True if it is a replacement that never takes the place of a copy."""
        return status_of(self.driver) is AttemptStatus.FAILED


def replacement_of(ledger: LedgerRecord) -> OtherCopy | None:
    """The copy that is under way for a ledger, or was abandoned; None if there is none.

    Raises:
        MetadataError: the property is none of ours.
    """
    text = _property(ledger, REPLACEMENT_PROPERTY)
    if text is None:
        return None
    with placed(ledger_id=ledger.ledger_id):
        return _parse(_loads(text), OtherRole.REPLACEMENT, ledger.ledger_id)


def replaced_of(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """The copies of a ledger that were replaced, and whose objects may still be there; errors as `replacement_of`."""
    text = _property(ledger, REPLACED_PROPERTY)
    if text is None:
        return ()
    with placed(ledger_id=ledger.ledger_id):
        found = _loads(text)
        if not isinstance(found, list):
            raise MetadataError("a list of replaced copies is damaged", found=type(found).__name__)
        return tuple(_parse(fields, OtherRole.REPLACED, ledger.ledger_id) for fields in found)


def others_of(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """All that a ledger's record names beside the copies that are read; errors as `replacement_of`."""
    under_way = replacement_of(ledger)
    return (*replaced_of(ledger), *(() if under_way is None else (under_way,)))


def other_copies(info: ManagedLedgerInfo) -> tuple[OtherCopy, ...]:
    """All that a managed ledger's record names beside the copies that are read, each once, in the topic's order.

    A segment of several ledgers that was replaced in one of them may still be read in another: see `read_copies`.

    Raises:
        MetadataError: a property is none of ours, with the ledger.
    """
    found: dict[tuple[UUID, OtherRole], OtherCopy] = {}
    for ledger in info.in_order:
        for copy in others_of(ledger):
            known = found.get((copy.uuid, copy.role))
            found[copy.uuid, copy.role] = (
                copy if known is None else replace(known, ledger_ids=(*known.ledger_ids, ledger.ledger_id))
            )
    return tuple(found.values())


def find_replacement(info: ManagedLedgerInfo, uuid: UUID) -> OtherCopy | None:
    """The replacement of this uuid, under way or abandoned; None if there is none."""
    return next(
        (each for each in other_copies(info) if each.uuid == uuid and each.role is OtherRole.REPLACEMENT),
        None,
    )


def check_reads(info: ManagedLedgerInfo, ledger_ids: Sequence[int], uuids: Sequence[UUID]) -> None:
    """Refuse to go on if the ledgers are not read from these copies any more (`AttemptError`)."""
    ledgers = [info.ledger(ledger_id) for ledger_id in ledger_ids]
    found = read_copies(ManagedLedgerInfo(ledgers=tuple(each for each in ledgers if each is not None)))
    if not found.issuperset(uuids):
        raise AttemptError(
            "the ledgers have other copies by now",
            ledger_id=ledger_ids[0],
            expected=", ".join(map(str, uuids)),
            found=", ".join(sorted(map(str, found))) or "none",
        )


def read_copies(info: ManagedLedgerInfo) -> frozenset[UUID]:
    """The attempts that ledgers which are not condemned name as their copies, complete or not."""
    return frozenset(uuid for ledger in info.ledgers if not ledger.is_condemned for uuid in ledger.copy_uuids)


def with_replacement(ledger: LedgerRecord, copy: OtherCopy | None) -> LedgerRecord:
    """The ledger, which has a copy, with this one under way for it; None for without."""
    return _with_property(ledger, REPLACEMENT_PROPERTY, None if copy is None else _dumps(_fields(copy)))


def with_replaced(ledger: LedgerRecord, copies: Iterable[OtherCopy]) -> LedgerRecord:
    """The ledger, which has a copy, with these as the ones that it replaced."""
    fields = [_fields(copy) for copy in copies]
    return _with_property(ledger, REPLACED_PROPERTY, _dumps(fields) if fields else None)


def _property(ledger: LedgerRecord, name: str) -> str | None:
    driver = None if ledger.context is None else ledger.context.driver
    return None if driver is None else driver.get(name)


def _with_property(ledger: LedgerRecord, name: str, value: str | None) -> LedgerRecord:
    context = ledger.context
    assert context is not None
    if _property(ledger, name) == value:
        return ledger
    driver = (context.driver or DriverMetadata(name="")).with_property(name, value)
    return replace(ledger, context=replace(context, driver=driver))


def _fields(copy: OtherCopy) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "uuid": str(copy.uuid),
        "form": copy.form.value,
        "since": copy.since_ms,
        "driver": copy.driver.name,
        "properties": dict(copy.driver.properties),
    }
    if copy.segment is not None:
        fields["segment"] = str(copy.segment)
    return fields


def _parse(value: object, role: OtherRole, ledger_id: int) -> OtherCopy:
    fields = JsonObject.of(value, f"a {role.value} copy's record", error=MetadataError)
    return OtherCopy(
        role=role,
        uuid=fields.uuid("uuid"),
        form=fields.choice("form", CopyForm),
        driver=DriverMetadata(
            name=fields.text("driver"), properties=tuple(fields.texts("properties").items())
        ),
        since_ms=fields.integer("since"),
        segment=fields.optional_uuid("segment"),
        ledger_ids=(ledger_id,),
    )


def _loads(text: str) -> Any:
    return read_json(text, "the record of another copy", error=MetadataError)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
