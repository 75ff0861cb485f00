"""Opens a managed ledger: takes it from whoever has it, and repairs what a process left that ended at any moment.

    1. look which ledgers of this managed ledger the hot tier has
    2. put a mark into the record             its former owner cannot change the record any more
    3. recover ledgers that are recorded as   their writers are fenced, wherever they are; what they have is recorded,
       open                                   and those without entries are forgotten
    4. delete ledgers of 1 that no record     they were created and never recorded, or forgotten, or their deletion was
       has, or as deleted                     cut off

The order of 1 and 2 matters: what is deleted was there before the mark, so it is of a former owner, who cannot record
it any more. A ledger that a later owner creates is not among them. Opening can be called again after any failure.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from offload_core.metadata.records import LedgerRecord
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger.appender import RolloverPolicy
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.ledger_deletion import delete_hot
from offload_core.writing.managed_ledger.managed_ledger import ManagedLedger
from offload_core.writing.managed_ledger.owned_record import (
    OwnedRecord,
    claim_record,
    end_ledger,
    lose_ledger,
)
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import DataLossError, FormatError, StoreError, UnknownLedgerError

_log = logging.getLogger(__name__)


def open_managed_ledger(
    environment: Environment,
    name: str,
    *,
    create: bool = True,
    rollover: RolloverPolicy | None = None,
    accept_loss: bool = False,
    only_free: bool = False,
) -> ManagedLedger:
    """Open a managed ledger, or create it; from now on nobody else can append to it.

    Args:
        name: `tenant/namespace/persistent/encoded topic`.
        create: whether one that is not there is created.
        rollover: when it goes on in a new ledger; None for Pulsar's defaults.
        accept_loss: where acknowledged entries of the last ledger are damaged, or the ledger is not there, go on
            without them. What lies in complete segments of a ledger that is not there is kept.
        only_free: whether it is left to an owner that has not closed it; such a one may have been killed, too.

    Raises:
        UnknownTopicError: there is none, and `create` is false.
        TopicDeletedError: it is being deleted; `delete_managed_ledger` ends that.
        OwnershipLostError: it has an owner, and `only_free`; nothing was changed.
        InvalidKeyError: no such name can be.
        FormatError: the record, or acknowledged entries of the last ledger, are damaged.
        DataLossError: the last ledger is not in the hot tier.
        OutcomeUnknownError, StoreError: of the metadata or the hot tier. Nobody has it open then.
    """
    found = environment.hot.of(name)
    owned = claim_record(environment.records, name, create, only_free=only_free)
    try:
        _recover(environment, owned, accept_loss)
        _sweep(environment, owned, found)
    except BaseException:
        owned.release()
        raise
    return ManagedLedger(environment, owned, RolloverPolicy() if rollover is None else rollover)


def _recover(environment: Environment, owned: OwnedRecord, accept_loss: bool) -> None:
    """Step 3."""
    for ledger_id in [ledger.ledger_id for ledger in owned.info.in_order if not ledger.info.is_closed]:
        try:
            status = environment.hot.store.recover(ledger_id, accept_loss).status
        except UnknownLedgerError as error:
            if not accept_loss:
                raise DataLossError(
                    f"a ledger of {owned.name} that was not sealed is not in the hot tier",
                    ledger_id=ledger_id,
                    hint="accept_loss=True opens the managed ledger without it.",
                ) from error
            _log.warning("ledger %d of %s is not in the hot tier, and given up", ledger_id, owned.name)
            owned.update(partial(lose_ledger, ledger_id=ledger_id, now_ms=environment.now_ms()))
            continue
        owned.update(partial(end_ledger, status=status, now_ms=environment.now_ms()))


def _sweep(environment: Environment, owned: OwnedRecord, found: Sequence[int]) -> None:
    """Step 4; what cannot be deleted now is found again by the next opening."""
    for ledger_id in found:
        ledger = owned.info.ledger(ledger_id)
        if ledger is not None and (ledger.context is None or not ledger.context.bookkeeper_deleted):
            continue
        try:
            delete_hot(environment, _leftover(owned.name, ledger_id, ledger))
        except (StoreError, FormatError) as error:
            _log.warning("ledger %d of %s is not deleted yet: %s", ledger_id, owned.name, error)


def _leftover(name: str, ledger_id: int, ledger: LedgerRecord | None) -> Deletion:
    why = (
        "it was left, and its topic does not have it"
        if ledger is None
        else "it was left when its deletion began"
    )
    filtered = () if ledger is None else recorded_filters(ledger)
    return Deletion(managed_ledger=name, ledger_id=ledger_id, copy="hot", why=why, filtered=filtered)
