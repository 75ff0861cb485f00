"""The tree of settings, and where it is read from: flags first, then the environment, the file, the defaults.

A section is a class. What may be secret is in no repr. The sections `policies` and `retention` are the broker's level
of policies.

An environment variable is `PULSAR_OFFLOAD_` and the setting's place, with `__` between its parts, in any case:
`PULSAR_OFFLOAD_SERVICE__PORT`, `PULSAR_OFFLOAD_POLICIES__MAX_THREADS`. Source: docs/service.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
)

from offload_core.metadata.catalogue.catalogue_cache import FOLDER_VARIABLE
from offload_core.metadata.policies import OffloadPolicies, RetentionPolicies, parse_policies
from offload_core.storage.named_tiers import TIER_VARIABLE
from offload_hooks.errors import MissingExtraError, OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Names = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str], when_used="json")]
"""Names in any order, shown in the same one each time."""


def _policies(given: Any) -> Any:
    return parse_policies(given) if isinstance(given, Mapping) else given


def _text_values(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


Options = Annotated[dict[str, SecretStr], BeforeValidator(_text_values)]
"""A plugin's options as text; any of them may be secret."""


def in_clear(options: Mapping[str, SecretStr]) -> dict[str, Any]:
    """A plugin's options as it takes them."""
    return {name: value.get_secret_value() for name, value in options.items()}


class Section(BaseModel):
    """A part of the tree; a name that it does not have is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True
    )


class MetadataSettings(Section):
    """The metadata store of managed ledgers' records and policies: its URL and options."""

    url: Annotated[str | None, Field(repr=False)] = None
    options: Options = Field(default_factory=dict)


class HotTierSettings(Section):
    """The store of ledgers before they are offloaded: its name and options."""

    store: str = "embedded"
    options: Options = Field(default_factory=dict)


class LiveSettings(Section):
    """A running cluster beside whose brokers topics are offloaded.

    Attributes:
        url: its ZooKeeper, `zk://host:2181,…/chroot`. options: of the metadata store `zk:`.
        admin_url: the admin REST of its brokers, `http://broker-1:8080,broker-2:8080`. admin_options: of the metadata
            store `http:`, such as `token_file`.
        bookkeeper: options of the ledger store `bookkeeper`; its `url` and login are those of the ZooKeeper.
        reload_timeout_s: how long a broker may take to load a topic anew after its record was changed.
        grace_s: how long after a copy is given to a record a broker's deletion lag begins: until then a copy that turns
            out not to be read is taken back.
        interval_s: how often `offload serve` looks what of the cluster is to be offloaded.
    """

    url: Annotated[str | None, Field(repr=False)] = None
    options: Options = Field(default_factory=dict)
    admin_url: Annotated[str | None, Field(repr=False)] = None
    admin_options: Options = Field(default_factory=dict)
    bookkeeper: Options = Field(default_factory=dict)
    reload_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    grace_s: Annotated[float, Field(ge=0)] = 3600.0
    interval_s: Annotated[float, Field(gt=0)] = 60.0


class TierSettings(Section):
    """A tier that holds copies and that no policy names any more: its driver, and the driver's options."""

    driver: str
    options: Options = Field(default_factory=dict)


class UploadSettings(Section):
    """The process that sends blocks to tiers that policies name.

    Attributes:
        niceness: a process of its own for each tier, whose priority is lower by this; None for this process.
        silence_timeout_s: time without a sign of life after which such a process is replaced.
        block_timeout_s: time without an answer to one block after which it is, too, and its blocks fail.
    """

    niceness: Annotated[int, Field(ge=0, le=19)] | None = None
    silence_timeout_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    block_timeout_s: Annotated[float, Field(ge=1, le=86400)] = 3600.0


class StreamingLimits(Section):
    """Limits of all topics together that are streamed in one process.

    Attributes:
        buffer_bytes: the memory of entries that wait for their offload.
        block_bytes: the memory of blocks that are filled or on their way.
        threads: how many calls of stores are made at the same time.
    """

    buffer_bytes: Annotated[int, Field(ge=1 << 20)] = 64 << 20
    block_bytes: Annotated[int, Field(ge=16 << 20)] = 256 << 20
    threads: Annotated[int, Field(ge=1, le=1000)] = 8


class AuditLogSettings(Section):
    """The audit log of deletions and their reasons."""

    path: Path | None = None


class TokenSettings(Section):
    """Keys and claims of tokens accepted. Keys are as Pulsar takes them: a path, `file:` or `data:` URL, base64.

    Attributes:
        secret_key: of HS256, HS384 and HS512. public_key: of the other algorithms.
        public_algorithm: which of them.
        role_claim: the claim that names the role. audience_claim, audience: of whom a token must be meant for.
        superuser_roles: the roles that may do everything.
        tenant_admin_roles: by tenant, the roles that may do everything in it; no other role may do anything.
    """

    secret_key: SecretStr | None = None
    public_key: str | None = None
    public_algorithm: str = "RS256"
    role_claim: str = "sub"
    audience_claim: str = "aud"
    audience: str | None = None
    superuser_roles: Names = frozenset()
    tenant_admin_roles: dict[str, Names] = Field(default_factory=dict)


MAX_REQUESTS = 32
"""Most requests that have a thread at the same time."""


class TenantPlace(Section):
    """A place where tenants may have their topics offloaded to.

    Attributes:
        tenants: which ones; none for all of them.
        driver: the driver. endpoint, bucket: the store's URL and the bucket or container, if the driver has them;
            without an endpoint a policy must name none.
        prefix: what the prefix that a policy names must be, or be below; none for any.
        root: of the driver `local`, the folder that a policy's root must be, or be below.
        options: what else a policy may and must name, by the driver's names.
    """

    tenants: Names = frozenset()
    driver: str
    endpoint: str = ""
    bucket: str = ""
    prefix: str = ""
    root: Path | None = None
    options: Options = Field(default_factory=dict)


class ServiceSettings(Section):
    """The REST service: where it listens, by which certificate, and whose tokens it takes.

    Attributes:
        tenant_places: places that tenants' roles may have topics offloaded to, besides those of the broker's policies;
            empty: no others.
        tenant_filters: the filters that they may name.
        upkeep_interval_s: seconds between rounds of upkeep.
        upkeep_threads: topics of a tenant in upkeep at the same time; those of others have one more.
        offload_threads: topics of a tenant that are offloaded at the same time by requests; those of others have one
            more.
        stop_timeout_s: seconds that it may take to end after the last answer.
        max_connections: how many there may be, at most half of the descriptors that the process may have; None for
            1,000.
        max_requests: how many requests are answered at the same time.
        max_requests_per_tenant: how many of a tenant, and how many of a superuser's role.
        request_timeout_s: how long a request may take to come, from when its connection was accepted or the answer
            before it was sent.
        owner: the name by which `offload own` owns topics; what an earlier process of this name left open, the next one
            takes.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tokens: TokenSettings = TokenSettings()
    tenant_places: tuple[TenantPlace, ...] = ()
    tenant_filters: Names = frozenset(("disabled", "transactions"))
    upkeep_interval_s: Annotated[float, Field(gt=0)] = 10.0
    upkeep_threads: Annotated[int, Field(ge=1, le=1000)] = 2
    offload_threads: Annotated[int, Field(ge=1, le=1000)] = 4
    stop_timeout_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    max_connections: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] = MAX_REQUESTS
    max_requests_per_tenant: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] = 8
    request_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 20.0
    owner: Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")] = "offload-own"


class Configuration(Section):
    """All that is set up."""

    metadata: MetadataSettings = MetadataSettings()
    hot_tier: HotTierSettings = HotTierSettings()
    live: LiveSettings = LiveSettings()
    tiers: tuple[TierSettings, ...] = ()
    uploads: UploadSettings = UploadSettings()
    streaming: StreamingLimits = StreamingLimits()
    audit_log: AuditLogSettings = AuditLogSettings()
    service: ServiceSettings = ServiceSettings()
    policies: Annotated[OffloadPolicies, BeforeValidator(_policies)] = Field(
        default_factory=lambda: parse_policies({})
    )
    retention: RetentionPolicies | None = None


PREFIX = "PULSAR_OFFLOAD_"
FILE_VARIABLE = f"{PREFIX}CONFIG"
"""Names the file where no flag does."""


def load_configuration(
    file: str | os.PathLike[str] | None = None, flags: Mapping[str, Any] | None = None
) -> Configuration:
    """Load the configuration.

    Args:
        file: a TOML file; None for the one that the environment names, if any.
        flags: settings as nested mappings, such as `{"service": {"port": 8443}}`.

    Raises:
        OptionError: a file that is none, an unknown name, or a value that makes no sense, with its place.
    """
    try:
        from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a configuration needs a library that is not installed",
            found=error.name,
            hint="Run: pip install 'pulsar-offload[cli]'.",
        ) from error
    chosen = file if file is not None else os.environ.get(FILE_VARIABLE)
    from_file = {} if chosen is None else _read(chosen)
    _check_environment()

    class Settings(BaseSettings, Configuration):  # type: ignore[misc]  # of two kinds of `model_config`
        """The tree, as the library reads environments for."""

    environment = EnvSettingsSource(Settings, env_prefix=PREFIX, env_nested_delimiter="__")
    try:
        return Configuration(**_merged(from_file, _merged(environment(), flags or {})))
    except SettingsError as error:
        raise OptionError("the environment makes no sense", found=error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise OptionError(
            f"the configuration makes no sense at {place}", found=first["msg"].removeprefix("Value error, ")
        ) from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            both[name] = _merged(below[name], above[name])
    return both


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("the configuration cannot be read", key=str(file), found=error.strerror) from None
    except ValueError as error:
        raise OptionError("the configuration is no TOML", key=str(file), found=error) from None


def _check_environment() -> None:
    known = {f"{PREFIX}{name}".upper() for name in Configuration.model_fields} | {FILE_VARIABLE}
    for name in os.environ.keys() - {FOLDER_VARIABLE}:
        if name.startswith(TIER_VARIABLE):
            continue
        if name.upper().startswith(PREFIX) and name.upper().partition("__")[0] not in known:
            raise OptionError(
                "there is no such setting",
                expected=", ".join(sorted(each + "__…" for each in known)),
                found=name,
            )
