"""The public API of pulsar-offload: read, write and look after Apache Pulsar's tiered storage, without a broker.

All that the documentation uses is here; nothing else is promised to stay as it is. A name is imported when it is asked
for, so that `import pulsar_offload` costs nothing. Those who write plug-ins need `offload_hooks` only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offload_core.format.codec.ledger_metadata import LedgerInfo as LedgerInfo
    from offload_core.format.codec.object_format import ObjectKey as ObjectKey
    from offload_core.format.codec.object_format import parse_key as parse_key
    from offload_core.format.messages.entry import EntryParts as EntryParts
    from offload_core.format.messages.entry import Message as Message
    from offload_core.format.messages.entry import NewMessage as NewMessage
    from offload_core.format.messages.entry import pack_entry as pack_entry
    from offload_core.format.messages.entry import read_messages as read_messages
    from offload_core.format.messages.entry import split_entry as split_entry
    from offload_core.interfaces.engines.daft_frame import read_daft as read_daft
    from offload_core.interfaces.engines.dask_frame import read_dask as read_dask
    from offload_core.interfaces.engines.polars_frame import scan_polars as scan_polars
    from offload_core.interfaces.engines.ray_source import OffloadedDatasource as OffloadedDatasource
    from offload_core.interfaces.engines.ray_source import read_ray as read_ray
    from offload_core.interfaces.engines.spark.executor import SparkExecutor as SparkExecutor
    from offload_core.interfaces.engines.spark.metrics import measure_reads as measure_reads
    from offload_core.interfaces.engines.spark.offloaded_frame import read_offloaded as read_offloaded
    from offload_core.interfaces.engines.spark.source import (
        PulsarOffloadDataSource as PulsarOffloadDataSource,
    )
    from offload_core.interfaces.engines.spark.source import explain as explain
    from offload_core.interfaces.progress_bar import ProgressBar as ProgressBar
    from offload_core.maintenance.gc import Collection as Collection
    from offload_core.maintenance.gc import Scope as Scope
    from offload_core.maintenance.inventory import RowLevel as RowLevel
    from offload_core.maintenance.inventory import measure as measure
    from offload_core.maintenance.inventory import rows_of as rows_of
    from offload_core.maintenance.inventory.charges import money_of as money_of
    from offload_core.maintenance.inventory.charges import month_of_storage as month_of_storage
    from offload_core.maintenance.inventory.charges import weigh as weigh
    from offload_core.maintenance.inventory.prices import load_prices as load_prices
    from offload_core.maintenance.inventory.report_contents import gather as gather
    from offload_core.maintenance.inventory.report_page import report_page as report_page
    from offload_core.maintenance.inventory.stored_amounts import by_topic as by_topic
    from offload_core.maintenance.inventory.stored_amounts import survey_stored as survey_stored
    from offload_core.maintenance.record_recovery import Recovered as Recovered
    from offload_core.maintenance.relocate import Wanted as Wanted
    from offload_core.maintenance.repair import HotCopies as HotCopies
    from offload_core.maintenance.repair import Repair as Repair
    from offload_core.maintenance.rollback import Allowed as Allowed
    from offload_core.maintenance.rollback import delete_judged as delete_judged
    from offload_core.maintenance.rollback import judge_tier as judge_tier
    from offload_core.maintenance.rollback import plan_rollback as plan_rollback
    from offload_core.maintenance.rollback import release_recorded as release_recorded
    from offload_core.maintenance.verify import Finding as Finding
    from offload_core.maintenance.verify import Severity as Severity
    from offload_core.maintenance.verify import Verification as Verification
    from offload_core.metadata.catalogue import Catalogue as Catalogue
    from offload_core.metadata.catalogue import Ledger as Ledger
    from offload_core.metadata.catalogue import RecordSource as RecordSource
    from offload_core.metadata.catalogue import TierReader as TierReader
    from offload_core.metadata.catalogue import Topic as Topic
    from offload_core.metadata.catalogue import TopicName as TopicName
    from offload_core.metadata.catalogue import open_tier as open_tier
    from offload_core.metadata.catalogue.known_tiers import KnownTiers as KnownTiers
    from offload_core.metadata.catalogue.known_tiers import tier_record as tier_record
    from offload_core.metadata.catalogue.survey import LedgerSurvey as LedgerSurvey
    from offload_core.metadata.catalogue.topics import managed_ledger_of_topic as managed_ledger_of_topic
    from offload_core.metadata.policies import RetentionPolicies as RetentionPolicies
    from offload_core.metadata.policies import parse_policies as parse_policies
    from offload_core.metadata.policies import resolve_policies as resolve_policies
    from offload_core.metadata.records import DriverMetadata as DriverMetadata
    from offload_core.metadata.records import EntryPosition as EntryPosition
    from offload_core.metadata.records import LedgerRecord as LedgerRecord
    from offload_core.metadata.records import ManagedLedgerInfo as ManagedLedgerInfo
    from offload_core.metadata.records import ReadPriority as ReadPriority
    from offload_core.metadata.records import assign_segment as assign_segment
    from offload_core.metadata.records import complete_segment as complete_segment
    from offload_core.metadata.records import extend_segment as extend_segment
    from offload_core.metadata.records import segments_of as segments_of
    from offload_core.metadata.stores import ManagedLedgerRecords as ManagedLedgerRecords
    from offload_core.metadata.stores import open_metadata_store as open_metadata_store
    from offload_core.metadata.stores.sqlite import SqliteStore as SqliteStore
    from offload_core.reading.export import ExportProgress as ExportProgress
    from offload_core.reading.export import ExportReport as ExportReport
    from offload_core.reading.export import ParquetOptions as ParquetOptions
    from offload_core.reading.export import export as export
    from offload_core.reading.read_handles import ColdReaders as ColdReaders
    from offload_core.reading.read_handles import TieredReaders as TieredReaders
    from offload_core.reading.scan import Condition as Condition
    from offload_core.reading.scan import Operator as Operator
    from offload_core.reading.scan import Position as Position
    from offload_core.reading.scan import Scan as Scan
    from offload_core.reading.scan import ScanEstimate as ScanEstimate
    from offload_core.reading.scan import ScanOptions as ScanOptions
    from offload_core.reading.scan import ScanTask as ScanTask
    from offload_core.reading.scan import TaskMetrics as TaskMetrics
    from offload_core.reading.scan import explain_scan as explain_scan
    from offload_core.reading.scan import message_id_of_position as message_id_of_position
    from offload_core.reading.scan import position_of_message_id as position_of_message_id
    from offload_core.reading.scan import read_task as read_task
    from offload_core.reading.scan import scan as scan
    from offload_core.storage.executors import Executor as Executor
    from offload_core.storage.executors import ProcessExecutor as ProcessExecutor
    from offload_core.storage.executors import ThreadExecutor as ThreadExecutor
    from offload_core.storage.hot import FileLedgerStore as FileLedgerStore
    from offload_core.storage.hot.bookkeeper import BookKeeperLedgerStore as BookKeeperLedgerStore
    from offload_core.storage.tier import MemoryBudget as MemoryBudget
    from offload_core.storage.tier import Tier as Tier
    from offload_core.storage.tier import open_store as open_store
    from offload_core.storage.tier import upload_blocks as upload_blocks
    from offload_core.writing.audit import FileAuditLog as FileAuditLog
    from offload_core.writing.audit import read_audit_log as read_audit_log
    from offload_core.writing.configuration import load_configuration as load_configuration
    from offload_core.writing.managed_ledger import Environment as Environment
    from offload_core.writing.managed_ledger import HotLedgers as HotLedgers
    from offload_core.writing.managed_ledger import ManagedLedger as ManagedLedger
    from offload_core.writing.managed_ledger import RolloverPolicy as RolloverPolicy
    from offload_core.writing.managed_ledger import StreamingPool as StreamingPool
    from offload_core.writing.managed_ledger import StreamingSettings as StreamingSettings
    from offload_core.writing.managed_ledger import TransactionalTopic as TransactionalTopic
    from offload_core.writing.managed_ledger import UpkeepLoop as UpkeepLoop
    from offload_core.writing.managed_ledger import look_at_transactions as look_at_transactions
    from offload_core.writing.managed_ledger import open_environment as open_environment
    from offload_core.writing.managed_ledger import open_managed_ledger as open_managed_ledger
    from offload_core.writing.managed_ledger import settle_transactions as settle_transactions
    from offload_core.writing.managed_ledger import topic_offloads as topic_offloads
    from offload_core.writing.offload import LedgerOffloader as LedgerOffloader
    from offload_core.writing.offload import Offered as Offered
    from offload_core.writing.offload import OfferResult as OfferResult
    from offload_core.writing.offload import SegmentOffloader as SegmentOffloader
    from offload_core.writing.offload.recorded_offload import RecordedOffloads as RecordedOffloads
    from offload_core.writing.policy_store import ResolvedPolicies as ResolvedPolicies
    from offload_core.writing.policy_store import open_policies as open_policies
    from offload_hooks.errors import AccessDeniedError as AccessDeniedError
    from offload_hooks.errors import AttemptError as AttemptError
    from offload_hooks.errors import BadLengthError as BadLengthError
    from offload_hooks.errors import BadMagicError as BadMagicError
    from offload_hooks.errors import BrokenPluginError as BrokenPluginError
    from offload_hooks.errors import ChecksumError as ChecksumError
    from offload_hooks.errors import DataLossError as DataLossError
    from offload_hooks.errors import DecompressionError as DecompressionError
    from offload_hooks.errors import DecryptionError as DecryptionError
    from offload_hooks.errors import EntryOrderError as EntryOrderError
    from offload_hooks.errors import FormatError as FormatError
    from offload_hooks.errors import IncompleteMessageError as IncompleteMessageError
    from offload_hooks.errors import IndexMismatchError as IndexMismatchError
    from offload_hooks.errors import InvalidKeyError as InvalidKeyError
    from offload_hooks.errors import LedgerClosedError as LedgerClosedError
    from offload_hooks.errors import LedgerFailedError as LedgerFailedError
    from offload_hooks.errors import LedgerFencedError as LedgerFencedError
    from offload_hooks.errors import LiveAttemptError as LiveAttemptError
    from offload_hooks.errors import MetadataError as MetadataError
    from offload_hooks.errors import MissingExtraError as MissingExtraError
    from offload_hooks.errors import NoReadableCopyError as NoReadableCopyError
    from offload_hooks.errors import ObjectExistsError as ObjectExistsError
    from offload_hooks.errors import ObjectNotFoundError as ObjectNotFoundError
    from offload_hooks.errors import OffloadError as OffloadError
    from offload_hooks.errors import OffloadStoppedError as OffloadStoppedError
    from offload_hooks.errors import OptionError as OptionError
    from offload_hooks.errors import OutcomeUnknownError as OutcomeUnknownError
    from offload_hooks.errors import OwnershipLostError as OwnershipLostError
    from offload_hooks.errors import PaddingError as PaddingError
    from offload_hooks.errors import PayloadError as PayloadError
    from offload_hooks.errors import PluginError as PluginError
    from offload_hooks.errors import RangeError as RangeError
    from offload_hooks.errors import SchemaError as SchemaError
    from offload_hooks.errors import StoreError as StoreError
    from offload_hooks.errors import StoreFullError as StoreFullError
    from offload_hooks.errors import StoreTimeoutError as StoreTimeoutError
    from offload_hooks.errors import StoreUnavailableError as StoreUnavailableError
    from offload_hooks.errors import StoreUnreachableError as StoreUnreachableError
    from offload_hooks.errors import TopicDeletedError as TopicDeletedError
    from offload_hooks.errors import TopicTerminatedError as TopicTerminatedError
    from offload_hooks.errors import TruncatedError as TruncatedError
    from offload_hooks.errors import UnknownLedgerError as UnknownLedgerError
    from offload_hooks.errors import UnknownPluginError as UnknownPluginError
    from offload_hooks.errors import UnknownTopicError as UnknownTopicError
    from offload_hooks.errors import UnknownTransactionError as UnknownTransactionError
    from offload_hooks.errors import UnresolvedTransactionError as UnresolvedTransactionError
    from offload_hooks.errors import UnsupportedVersionError as UnsupportedVersionError
    from offload_hooks.errors import UploadError as UploadError
    from offload_hooks.errors import VersionConflictError as VersionConflictError
    from offload_hooks.errors import VersionMismatchError as VersionMismatchError
    from pulsar_offload.maintenance import gc as gc
    from pulsar_offload.maintenance import recover as recover
    from pulsar_offload.maintenance import relocate as relocate
    from pulsar_offload.maintenance import repair as repair
    from pulsar_offload.maintenance import verify as verify

    __version__: str

_PLACES = {
    "offload_core.format.codec.ledger_metadata": "LedgerInfo",
    "offload_core.format.codec.object_format": "ObjectKey parse_key",
    "offload_core.format.messages.entry": "EntryParts Message NewMessage pack_entry read_messages split_entry",
    "offload_core.interfaces.engines.daft_frame": "read_daft",
    "offload_core.interfaces.engines.dask_frame": "read_dask",
    "offload_core.interfaces.engines.polars_frame": "scan_polars",
    "offload_core.interfaces.engines.ray_source": "OffloadedDatasource read_ray",
    "offload_core.interfaces.progress_bar": "ProgressBar",
    "offload_core.interfaces.engines.spark.executor": "SparkExecutor",
    "offload_core.interfaces.engines.spark.offloaded_frame": "read_offloaded",
    "offload_core.interfaces.engines.spark.metrics": "measure_reads",
    "offload_core.interfaces.engines.spark.source": "PulsarOffloadDataSource explain",
    "offload_core.maintenance.gc": "Collection Scope",
    "offload_core.maintenance.inventory": "RowLevel measure rows_of",
    "offload_core.maintenance.inventory.charges": "money_of month_of_storage weigh",
    "offload_core.maintenance.inventory.report_contents": "gather",
    "offload_core.maintenance.inventory.report_page": "report_page",
    "offload_core.maintenance.inventory.prices": "load_prices",
    "offload_core.maintenance.inventory.stored_amounts": "by_topic survey_stored",
    "offload_core.maintenance.record_recovery": "Recovered",
    "offload_core.maintenance.relocate": "Wanted",
    "offload_core.maintenance.repair": "HotCopies Repair",
    "offload_core.maintenance.rollback": "Allowed delete_judged judge_tier plan_rollback release_recorded",
    "offload_core.maintenance.verify": "Finding Severity Verification",
    "offload_core.metadata.catalogue": "Catalogue Ledger RecordSource TierReader Topic TopicName open_tier",
    "offload_core.metadata.catalogue.known_tiers": "KnownTiers tier_record",
    "offload_core.metadata.catalogue.survey": "LedgerSurvey",
    "offload_core.metadata.catalogue.topics": "managed_ledger_of_topic",
    "offload_core.metadata.policies": "RetentionPolicies parse_policies resolve_policies",
    "offload_core.metadata.records": """
        DriverMetadata EntryPosition LedgerRecord ManagedLedgerInfo ReadPriority assign_segment
        complete_segment extend_segment segments_of
    """,
    "offload_core.metadata.stores": "ManagedLedgerRecords open_metadata_store",
    "offload_core.metadata.stores.sqlite": "SqliteStore",
    "offload_core.reading.export": "ExportProgress ExportReport ParquetOptions export",
    "offload_core.reading.read_handles": "ColdReaders TieredReaders",
    "offload_core.reading.scan": """
        Condition Operator Position Scan ScanEstimate ScanOptions ScanTask TaskMetrics explain_scan
        message_id_of_position position_of_message_id read_task scan
    """,
    "offload_core.storage.executors": "Executor ProcessExecutor ThreadExecutor",
    "offload_core.storage.hot": "FileLedgerStore",
    "offload_core.storage.hot.bookkeeper": "BookKeeperLedgerStore",
    "offload_core.storage.tier": "MemoryBudget Tier open_store upload_blocks",
    "offload_core.writing.audit": "FileAuditLog read_audit_log",
    "offload_core.writing.configuration": "load_configuration",
    "offload_core.writing.managed_ledger": """
        Environment HotLedgers ManagedLedger RolloverPolicy StreamingPool StreamingSettings
        TransactionalTopic UpkeepLoop look_at_transactions open_environment open_managed_ledger
        settle_transactions topic_offloads
    """,
    "offload_core.writing.offload": "LedgerOffloader Offered OfferResult SegmentOffloader",
    "offload_core.writing.offload.recorded_offload": "RecordedOffloads",
    "offload_core.writing.policy_store": "ResolvedPolicies open_policies",
    "offload_hooks.errors": """
        AccessDeniedError AttemptError BadLengthError BadMagicError BrokenPluginError ChecksumError
        DataLossError DecompressionError DecryptionError EntryOrderError FormatError IncompleteMessageError
        IndexMismatchError InvalidKeyError LedgerClosedError LedgerFailedError LedgerFencedError
        LiveAttemptError MetadataError MissingExtraError NoReadableCopyError ObjectExistsError
        ObjectNotFoundError OffloadError OffloadStoppedError OptionError OutcomeUnknownError
        OwnershipLostError PaddingError PayloadError PluginError RangeError SchemaError StoreError
        StoreFullError StoreTimeoutError StoreUnavailableError StoreUnreachableError TopicDeletedError
        TopicTerminatedError
        TruncatedError UnknownLedgerError UnknownPluginError UnknownTopicError UnknownTransactionError
        UnresolvedTransactionError UnsupportedVersionError UploadError VersionConflictError
        VersionMismatchError
    """,
    "pulsar_offload.maintenance": "gc recover relocate repair verify",
}
"""The names that each module gives."""
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = [*_PLACE_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # costs 30 ms

        return version("pulsar-offload")
    if name not in _PLACE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
