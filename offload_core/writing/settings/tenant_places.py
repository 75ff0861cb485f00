"""The tiers that tenants may use: the broker's, those that an operator set, and those of a list.

Policies of a tier that an operator set are vouched for in their record. All others were set by a tenant, or by the
broker that wrote the record: they are checked against the list when they are set, and before each use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.policies.tier_fields import asks_by_surroundings, same_driver
from offload_core.storage.tier import registry
from offload_core.writing.settings import TenantPlace
from offload_hooks.errors import OffloadError, OptionError

_FREE = frozenset(
    (
        *("access_key_id", "secret_access_key", "session_token", "token", "account_key", "sas_token"),
        *("anonymous", "storage_class", "role_session_name"),
    )
)
"""The drivers' options that a tenant may set at a listed place; of credentials those in the policy itself."""

_ENDPOINT, _BUCKET = "managedLedgerOffloadServiceEndpoint", "managedLedgerOffloadBucket"


class TenantPlaces:
    """The check of tenants' policies.

    Args:
        listed: the places that tenants may name.
        filters: the filters that they may name.
        has_tenants: whether roles of tenants change policies; if not, only a server is refused that an operator did
            not name and that would get credentials of the machine.
    """

    def __init__(
        self,
        listed: Sequence[TenantPlace] = (),
        *,
        filters: frozenset[str] = frozenset(),
        has_tenants: bool = False,
    ) -> None:
        self._listed = tuple(listed)
        self._filters = filters
        self.has_tenants = has_tenants or bool(listed)

    def check_tier(self, tenant: str, vouched: EffectivePolicies, policies: EffectivePolicies) -> None:
        """Refuse a tier that a tenant may not name.

        Args:
            vouched: the policies in force without those of a tier that no operator set.
            policies: the policies in force.

        Raises:
            OptionError: it is neither the vouched one nor listed. The text is the same whether the place exists or not.
        """
        if policies.tier() == vouched.tier():
            return
        if not self.has_tenants and not asks_by_surroundings(policies.tier()):
            return
        if any(_is_at(place, vouched, policies) for place in self._of(tenant, policies.driver)):
            return
        raise OptionError(
            "a tenant may name only a tier that the operator lists",
            expected="one of service.tenant_places, with no other options; or policies that an operator sets",
        )

    def check_filter(self, name: str) -> None:
        """Refuse a filter that a tenant may not name.

        Raises:
            OptionError: it is not listed.
        """
        if name not in self._filters:
            raise OptionError(
                "a tenant may name only a filter that the operator lists",
                expected=", ".join(sorted(self._filters)),
                found=repr(name),
            )

    def _of(self, tenant: str, driver: str | None) -> list[TenantPlace]:
        return [
            place
            for place in self._listed
            if same_driver(place.driver, driver) and (not place.tenants or tenant in place.tenants)
        ]


def _is_at(place: TenantPlace, vouched: EffectivePolicies, policies: EffectivePolicies) -> bool:
    """True if a tier is at a place, and a tenant may set all other options of it."""
    driver = policies.driver
    assert driver is not None
    try:
        given = _by_own_names(driver, policies.named_options())
        known = _by_own_names(driver, vouched.named_options()) if same_driver(vouched.driver, driver) else {}
        fixed = {_ENDPOINT: place.endpoint, _BUCKET: place.bucket}
        listed = _by_own_names(driver, {name: value for name, value in fixed.items() if value})
        listed |= {name: value.get_secret_value().strip() for name, value in place.options.items()}
        empty = _by_own_names(driver, dict.fromkeys(fixed, "-"))
    except OffloadError:
        return False
    prefix, root = given.pop("prefix", ""), given.pop("root", "") if place.root is not None else ""
    if not _is_below(prefix.strip("/").split("/"), place.prefix.strip("/").split("/")):
        return False
    if place.root is not None and not _is_inside(root, place.root):
        return False
    for name, value in given.items():
        is_place = name in listed or name in empty
        if value != listed.get(name) and (is_place or (known.get(name) != value and name not in _FREE)):
            return False
    return all(given.get(name) == value for name, value in listed.items())


def _by_own_names(driver: str, options: Mapping[str, object]) -> dict[str, str]:
    named = registry.driver_options_by_own_names(driver, options)
    texts = {name: str(value).strip() for name, value in named.items()}
    return {name: text for name, text in texts.items() if text}


def _is_below(parts: list[str], place: list[str]) -> bool:
    return place == [""] or (parts[: len(place)] == place and not {"", ".", ".."}.intersection(parts))


def _is_inside(root: str, place: os.PathLike[str]) -> bool:
    """True if a folder, links followed, is another one or below it."""
    if not root.startswith("/") or "\0" in root or ".." in root.split("/"):
        return False
    real, around = os.path.realpath(root), os.path.realpath(place)
    return os.path.commonpath((real, around)) == around
