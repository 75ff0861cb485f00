"""Managed ledgers' records from a broker's admin REST: two answers about a topic, joined to one record.

`internalStats` states of each ledger whether it is offloaded; `internal-info` has the record's sizes, times and uuids,
but calls a ledger offloaded as soon as an attempt began. Neither names drivers or segments. What a broker knows beyond
its record is how many entries the open ledger has.

Offload policies of topics and namespaces are at the paths that `policy_places` has for them, as far as the caller may
see them. Source: docs/metadata-stores.md.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from uuid import UUID

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue.policy_places import NAMESPACES, TOPICS
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import (
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    pack_managed_ledger_info,
)
from offload_core.storage.pulsar_admin import AdminPlugin
from offload_hooks.errors import AccessDeniedError, MetadataError, OptionError, placed

_ROOT = "managed-ledgers"
_DOMAIN = "persistent"
_NAME = re.compile(r"(?!\.{1,2}$)[-=:.\w]+")
_LARGEST = (1 << 63) - 1
_NO_POLICIES = (HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.METHOD_NOT_ALLOWED)
"""There are none, with an empty answer; or, of topics, the cluster has none at all."""

_log = logging.getLogger(__name__)


class AdminRecords(AdminPlugin):
    """The metadata store `http:` and `https:`: records from the admin REST of a Pulsar cluster.

    Its options are those of `AdminPlugin`.
    """

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `offload_hooks.metadata_stores.MetadataStore`."""
        if path.startswith(f"{TOPICS}/"):
            place = admin_path(path.removeprefix(f"{TOPICS}/"))
            return self._policies(f"{place}/offloadPolicies", "offloadPolicies")
        if path.startswith(f"{NAMESPACES}/"):
            names = "/".join(map(_quoted, path.removeprefix(f"{NAMESPACES}/").split("/")))
            return self._policies(f"/admin/v2/namespaces/{names}/offloadPolicies", "offload_policies")
        parts = _parts(path)
        if not _is_topic(parts):
            return None
        name = admin_path("/".join(parts))
        # In this order: what happens in between makes a ledger look less offloaded than it is, never more.
        stats = self._client.get_json(f"{name}/internalStats")
        info = None if stats is None else self._client.get_json(f"{name}/internal-info")
        if info is None:
            return None
        with placed(key=name):
            record, version = join_record(stats, info)
        return pack_managed_ledger_info(record), version

    def children(self, path: str) -> list[str]:
        """See `offload_hooks.metadata_stores.MetadataStore`."""
        match _parts(path):
            case []:
                return [_checked(name) for name in self._names("/admin/v2/tenants")]
            case [tenant]:
                names = self._names(f"/admin/v2/namespaces/{_quoted(tenant)}")
                return list(filter(None, (_local_namespace(name, tenant) for name in names)))
            case [_, _]:
                return [_DOMAIN]
            case [tenant, namespace, domain] if domain == _DOMAIN:
                begin = f"{_DOMAIN}://{tenant}/{namespace}/"
                place = f"/admin/v2/{_DOMAIN}/{_quoted(tenant)}/{_quoted(namespace)}"
                names = self._names(f"{place}?includeSystemTopic=true")
                return [_encoded(name, begin) for name in names]
        return []

    def _policies(self, path: str, field: str) -> tuple[bytes, int] | None:
        """Offload policies as the field of a record that has them; None if there are none, or they are not shown."""
        try:
            answer = self._client.get_json(path, absent=_NO_POLICIES)
        except AccessDeniedError as error:
            _log.warning("offload policies are not shown, and taken for none: %s", error)
            return None
        return None if answer is None else (json.dumps({field: answer}).encode(), 0)

    def _names(self, path: str) -> list[str]:
        answer = self._client.get_json(path)
        if answer is None:
            return []
        if not isinstance(answer, list) or not all(isinstance(name, str) for name in answer):
            raise _other_form("a list of names", answer).at(key=path)
        return list(dict.fromkeys(answer))


def admin_path(managed_ledger: str) -> str:
    """The path of a topic in an admin REST, by its managed ledger's name.

    Raises:
        OptionError: a topic of Pulsar 1, with a cluster in its name.
        MetadataError: names that none has.
    """
    parts = managed_ledger.split("/")
    if not _is_topic(parts):
        raise OptionError("an admin REST has no topics of such names", found=managed_ledger)
    tenant, namespace, domain, topic = parts
    return f"/admin/v2/{domain}/{_quoted(tenant)}/{_quoted(namespace)}/{topic}"


def offloaded_ledgers(stats: Any) -> dict[int, bool]:
    """The ledgers in a topic's `internalStats`, and whether each is offloaded; errors as `join_record`."""
    return {_whole(each, "ledgerId"): _truth(each, "offloaded") for each in _list(stats, "ledgers")}


def join_record(stats: Any, info: Any) -> tuple[ManagedLedgerInfo, int]:
    """A topic's record, and its version, from its `internalStats` and the `internal-info` that was asked for later.

    Raises:
        MetadataError: an answer of another form, or the two contradict each other.
    """
    current_entries = _whole(stats, "currentLedgerEntries")
    offloaded = offloaded_ledgers(stats)
    ledgers = []
    for each in _list(info, "ledgers"):
        ledger_id = _whole(each, "ledgerId")
        is_closed = "entries" in each
        ledgers.append(
            LedgerRecord(
                info=LedgerInfo(
                    ledger_id=ledger_id,
                    entries=_whole(each, "entries") if is_closed else current_entries,
                    size=_whole(each, "size") if is_closed else None,
                    timestamp_ms=_whole(each, "timestamp") if is_closed else 0,
                ),
                context=_context(each, ledger_id, is_complete=offloaded.get(ledger_id, False)),
            )
        )
    if len({ledger.ledger_id for ledger in ledgers}) < len(ledgers):
        raise MetadataError("a broker tells of a ledger more than once")
    return ManagedLedgerInfo(ledgers=tuple(ledgers)), _whole(info, "version")


def _context(each: Mapping[str, Any], ledger_id: int, *, is_complete: bool) -> OffloadContext | None:
    text = each.get("offloadedContextUuid")
    if text is None:
        if is_complete:
            raise MetadataError(
                "a broker calls a ledger offloaded and does not say where", ledger_id=ledger_id
            )
        return None
    try:
        uuid = UUID(text)
    except (ValueError, TypeError, AttributeError):
        raise _other_form("a uuid as offloadedContextUuid", text).at(ledger_id=ledger_id) from None
    return OffloadContext(uuid=uuid, complete=is_complete)


# --- parts of answers and paths ----------------------------------------------------------------


def _is_topic(parts: Sequence[str]) -> bool:
    return len(parts) == len(("tenant", "namespace", _DOMAIN, "topic")) and parts[2] == _DOMAIN


def _parts(path: str) -> list[str]:
    root, *parts = path.strip("/").split("/")
    if root != _ROOT:
        raise OptionError("an admin REST has managed ledgers only", expected=f"/{_ROOT}/…", found=path)
    return parts


def _quoted(name: str) -> str:
    return quote(_checked(name), safe="")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _other_form("the name of a tenant or namespace", name)
    return name


def _local_namespace(name: str, tenant: str) -> str | None:
    """A namespace's own name; None for one of Pulsar 1, which has its cluster in it, with a warning."""
    parts = name.split("/")
    if parts[0] != tenant or not 2 <= len(parts) <= 3:
        raise _other_form(f"a namespace of {tenant}", name)
    if len(parts) == 3:
        _log.warning("the namespace %r has a cluster in its name: an admin REST cannot be asked of it", name)
        return None
    return _checked(parts[1])


def _encoded(name: str, begin: str) -> str:
    if not name.startswith(begin) or name == begin:
        raise _other_form(f"topics {begin}…", name)
    return managed_ledger_of_topic(TopicName(name)).rpartition("/")[2]


def _list(answer: Any, name: str) -> list[Mapping[str, Any]]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _other_form(f"{name!r} with a list of objects", found)
    return found


def _whole(answer: Any, name: str) -> int:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= _LARGEST:
        raise _other_form(f"{name!r} with a number of 0 or more", found)
    return found


def _truth(answer: Mapping[str, Any], name: str) -> bool:
    found = answer.get(name)
    if not isinstance(found, bool):
        raise _other_form(f"{name!r} with true or false", found)
    return found


def _other_form(expected: str, found: object) -> MetadataError:
    text = repr(found)
    return MetadataError(
        "an answer of a broker has another form",
        expected=expected,
        found=text if len(text) <= 100 else f"{text[:100]}…",
    )
