"""The configured tiers, and which of them a record means.

A copy is read and deleted in the tier that its record names, whatever the current policy names. Only configured tiers
are opened: a record or an object never decides where credentials are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.records import DriverMetadata
from offload_core.metadata.records.attempts import place_of
from offload_core.metadata.records.offload_context import MAPFILE_DRIVER
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError

_DRIVER = "managedLedgerOffloadDriver"
_LOCATION = "location"
"""Our own property: Pulsar's do not have the prefix in a bucket. Pulsar ignores it."""


_BASE_PATH = "storageBasePath"
"""Pulsar's property of a tier of MapFiles."""


def offload_format(tier: Tier) -> ObjectFormat:
    """The format of ledgers that are offloaded to a tier: MapFiles, if it was opened by Pulsar's driver of them."""
    return tier_record(tier).ledger_format


def tier_record(tier: Tier, format_: ObjectFormat | None = None) -> DriverMetadata:
    """The driver metadata that records get for a tier: Pulsar's name of its driver, its properties, its location.

    Args:
        tier: that copies lie in.
        format_: of the copy that is recorded; None for what is offloaded to the tier.
    """
    description = tier.describe()
    properties = {name: value for name, value in description.driver_metadata.items() if name != _DRIVER}
    name = description.driver_metadata.get(_DRIVER, description.name)
    if format_ is ObjectFormat.MAPFILE:
        name = MAPFILE_DRIVER
    elif format_ is not None and name == MAPFILE_DRIVER:
        name = description.name
    place = urlsplit(description.location)
    if name == MAPFILE_DRIVER and place.scheme == "file":
        properties[_BASE_PATH] = unquote(place.path)
    return DriverMetadata(name=name, properties=(*properties.items(), (_LOCATION, description.location)))


_PROVIDERS = {
    "aws-s3": "AWS_S3",
    "s3": "S3",
    "google-cloud-storage": "GOOGLE_CLOUD_STORAGE",
    "azureblob": "AZURE_BLOB",
}
"""What a broker records for its drivers that write the same objects as we do."""


def broker_record(recorded: DriverMetadata, driver: str) -> DriverMetadata:
    """The driver metadata that a broker records for a copy, by which it finds it again.

    Args:
        recorded: the copy's, as of `tier_record`, or by a broker.
        driver: the driver as policies name it.

    Raises:
        OptionError: a broker with these policies does not find the copy.
    """
    provider = _PROVIDERS.get(driver.lower())
    base_path = recorded.get(_BASE_PATH)
    if driver.lower() == MAPFILE_DRIVER == recorded.name and base_path is not None:
        return DriverMetadata(name=driver, properties=((_BASE_PATH, base_path),))
    location, bucket = recorded.get(_LOCATION) or "", recorded.get("bucket")
    known = _PROVIDERS.get(recorded.name.lower(), recorded.name)
    is_bucket = bucket is not None and not urlsplit(location).path.strip("/")
    if provider is None or _kind(provider) != _kind(known) or not is_bucket:
        raise OptionError(
            "brokers cannot read what is offloaded to this tier",
            expected=f"{MAPFILE_DRIVER}, or a bucket without a prefix by one of {', '.join(_PROVIDERS)}",
            found=f"{driver}: {recorded.name} at {location}",
        )
    properties = [
        (name, value) for name, value in place_of(recorded).properties if name not in (_LOCATION, _DRIVER)
    ]
    return DriverMetadata(name=driver, properties=(*properties, (_DRIVER, provider)))


def _kind(provider: str) -> str:
    """The kind of store of a provider, as brokers name them: S3 is one, whichever service has it."""
    return "S3" if provider == _PROVIDERS["aws-s3"] else provider


class KnownTiers:
    """The tier that ledgers are offloaded to now, and others that they were offloaded to before. None is closed.

    Args:
        current: that ledgers are offloaded to now.
        others: that they were offloaded to before.
        elsewhere: returns the tier of a record that means none of these, or None.
    """

    def __init__(
        self,
        current: Tier,
        others: Sequence[Tier] = (),
        *,
        elsewhere: Callable[[DriverMetadata], Tier | None] = lambda _: None,
    ) -> None:
        self.current = current
        self._elsewhere = elsewhere
        self._all = [(tier, tier_record(tier)) for tier in (current, *others)]

    def find(self, recorded: DriverMetadata | None) -> Tier:
        """The tier of a record; the current one for a record that names none.

        Raises:
            OptionError: none of these.
        """
        if recorded is None or _names_none(recorded):
            return self.current
        for tier, ours in self._all:
            if is_same_place(ours, recorded):
                return tier
        found = self._elsewhere(recorded)
        if found is not None:
            return found
        raise OptionError(
            "a copy lies in a tier that is not configured",
            expected=", ".join(str(ours.get(_LOCATION)) for _, ours in self._all),
            found=place_text(recorded),
            hint="Configure that tier as well.",
        )


def _names_none(recorded: DriverMetadata) -> bool:
    """Return whether a record names no tier, as old ones."""
    return not recorded.name and not place_of(recorded).properties


def is_same_place(ours: DriverMetadata, recorded: DriverMetadata) -> bool:
    """Return whether a record means the tier with the `tier_record` `ours`.

    Our own records are compared by location, Pulsar's by all properties that they have."""
    location = recorded.get(_LOCATION)
    if location is not None:
        same_service = (ours.get("serviceEndpoint") or "") == (recorded.get("serviceEndpoint") or "")
        return location == ours.get(_LOCATION) and same_service
    given = {
        name: value
        for name, value in place_of(recorded).properties
        if value and name not in ("region", _DRIVER)  # a broker has the kind of store as a property as well
    }
    return bool(given) and all(ours.get(name) == value for name, value in given.items())


def is_another_place(ours: DriverMetadata, recorded: DriverMetadata) -> bool:
    """Return whether a record certainly means another tier than that with the `tier_record` `ours`.

    A record that names a bucket may be about a folder, to which the bucket was copied. A record that names a folder
    is never about a bucket."""
    location, ours_at = recorded.get(_LOCATION), ours.get(_LOCATION)
    if location is not None and ours_at is not None and _scheme(location) == _scheme(ours_at):
        return location != ours_at
    bucket, ours_in = recorded.get("bucket"), ours.get("bucket")
    if ours_in is None:
        return False
    if bucket is not None:
        return bucket != ours_in
    return recorded.name == "filesystem" or (location is not None and ours_at is not None)


def place_text(recorded: DriverMetadata) -> str:
    """A readable name of a record's tier."""
    name = recorded.name or "a driver without a name"
    place = recorded.get(_LOCATION) or recorded.get("bucket")
    return name if place is None else f"{name} at {place}"


def _scheme(location: str) -> str:
    return location.partition(":")[0]
