"""Tables of the documentation list exactly what there is: options, defaults, methods, fields, columns, errors."""

import dataclasses
import inspect
import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import tomllib
from damage import DAMAGES
from pages.blocks import section_of
from pyspark.sql.pandas.types import from_arrow_type
from scenes.repairs import contents_of, repaired

from offload_core.format.messages.message_columns import ENTRY_COLUMNS, EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_core.interfaces.cli import cost, repair, report, rollback, verify
from offload_core.interfaces.engines.spark.source_options import (
    HOT_PREFIX,
    KNOWN,
    RECORDS_PREFIX,
    STORAGE_PREFIX,
    SourceOptions,
)
from offload_core.maintenance.repair import Action
from offload_core.maintenance.rollback import Need, Verdict
from offload_core.maintenance.verify import Code, Verification
from offload_core.maintenance.verify.findings import Finding
from offload_core.metadata import records
from offload_core.metadata.catalogue import Problem
from offload_core.metadata.catalogue.admin_records import AdminRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_core.reading.scan import ScanEstimate, ScanOptions
from offload_core.reading.transaction_buffers import BufferState
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.hot.bookkeeper import BookKeeperLedgerStore
from offload_core.storage.tier import open_store, registry
from offload_core.writing.configuration import LiveSettings
from offload_core.writing.managed_ledger import RolloverPolicy, SnapshotPolicy, StreamingSettings
from offload_core.writing.offload import LedgerOffloader, OfferResult, OffloadHandle, SegmentOffloader
from offload_drivers.azure import AzureDriver
from offload_drivers.fsspec import FsspecDriver
from offload_drivers.gcs import GcsDriver
from offload_drivers.hdfs import HdfsDriver
from offload_drivers.pulsar_filesystem import FilesystemDriver
from offload_drivers.s3 import S3Driver
from offload_hooks import HOOK_SPEC_VERSION, OPTIONAL_HOOKS, Capabilities, TierHooks, errors
from offload_hooks.errors import OffloadError
from offload_hooks.ledger_stores import LedgerReader, LedgerStore, LedgerWriter, WritableLedgerStore
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore
from offload_hooks.testing import DriverConformance, MetadataStoreConformance, WritableLedgerStoreConformance
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.fault_plan import KINDS
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase
from offload_hooks.testing.metadata_cases.base import MetadataSuiteBase
from offload_layers.retry import MARKER

DOCS = Path(__file__).parents[2] / "docs"


def text_of(page):
    return (DOCS / f"{page}.md").read_text()


def section(page, title):
    """What stands below a heading of the second level."""
    return section_of(text_of(page), title)


def rows(text, heading=""):
    """The first two columns of the rows whose first is code: of the table with this heading, or of a whole text."""
    table = text.partition(heading)[2].partition("\n\n")[0] if heading else text
    return dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", table, re.MULTILINE))


def names_in(text):
    return set(re.findall(r"`([\w-]+)`", text))


def fields(kind):
    return [each.name for each in dataclasses.fields(kind)]


def parameters(function):
    return list(inspect.signature(function).parameters.values())


def methods(contract):
    """The methods of a contract with their arguments, as pages have them."""
    return [
        f"{name}({', '.join(each.name for each in parameters(method)[1:])})"
        for name, method in vars(contract).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        ("hooks", "| Capability | Default |", fields(Capabilities)),
        ("managed-ledger", "| Field | Default |", fields(RolloverPolicy)),
        ("managed-ledger", "| Setting | Default |", fields(StreamingSettings)),
        ("conformance", "| Declared | What is judged then |", fields(Capabilities)),
        ("conformance", "| Kind | What happens |", KINDS),
        (
            "hot-tier",
            "| Method of the store | Meaning |",
            dict.fromkeys([*methods(LedgerStore), *methods(WritableLedgerStore)]),
        ),
        ("hot-tier", "| Method of a writer | Meaning |", methods(LedgerWriter)),
        ("hot-tier", "| Method of a reader | Meaning |", methods(LedgerReader)),
        ("offload", "| Answer ", [each.name for each in OfferResult]),
        ("offload", "| Argument of `SegmentOffloader`", [each.name for each in parameters(SegmentOffloader)]),
        (
            "offload",
            "| Argument of `LedgerOffloader`",
            [each.name for each in parameters(LedgerOffloader)][1:],
        ),
        ("rollback", "| `need` |", [each.value for each in Need]),
        ("rollback", "| `verdict` |", [each.value for each in Verdict]),
    ],
)
def test_a_table_has_exactly_what_there_is(page, heading, expected):
    assert list(rows(text_of(page), heading)) == list(expected)


def test_the_extras_of_the_distribution_are_listed():
    project = tomllib.loads(DOCS.parent.joinpath("pyproject.toml").read_text())["project"]
    listed = re.findall(r"^\| (`.*?) \|", section("index", "Install"), re.MULTILINE)
    assert names_in(" ".join(listed)) == project["optional-dependencies"].keys() - {"test"}


def test_the_calls_of_a_handle_are_documented():
    table = text_of("offload").partition("| Call of the handle")[2].partition("\n\n")[0]
    public = {name for name in vars(OffloadHandle) if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)[`(]", table, re.MULTILINE)) == public


def test_the_fields_of_a_snapshot_policy_and_the_states_of_a_buffer_are_documented():
    text = text_of("transactions")
    table = text.partition("by `SnapshotPolicy`:")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert list(rows(table).items()) == [
        (field.name, str(field.default)) for field in dataclasses.fields(SnapshotPolicy)
    ]
    assert re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE) == [each.value for each in BufferState]


def test_the_states_of_streaming_objects_are_documented():
    table = text_of("rollback").partition("| `state` |")[2].partition("\n\n")[0]
    states = {name for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in names_in(row)}
    assert states - {"complete", "not-streaming"} <= {each.value for each in Problem}
    assert {"complete", "not-streaming", "no-index", "no-data", "broken-index", "wrong-length"} <= states


def test_the_codes_of_findings_are_documented_as_they_are():
    row = re.compile(r"^\| `([a-z0-9.-]+)` \| (error|warning) \| (.+) \| (.+) \|$", re.MULTILINE)
    assert sorted(match.groups() for match in row.finditer(text_of("verify"))) == sorted(
        (code.value, code.severity.value, code.meaning, code.helps) for code in Code
    )


# --- options of commands -----------------------------------------------------------------------

SHARED = {"--driver", "--option", "--layer", "--debug", "--url"}


def options_of(command):
    spelled = {"--as-json": "--json"}
    given = {f"--{each.name.replace('_', '-')}" for each in parameters(command)}
    return {spelled.get(each, each) for each in given}


@pytest.mark.parametrize(
    ("command", "text", "without"),
    [
        (verify.verify, section("verify", "Options"), set()),
        (repair.repair, section("repair", "Options"), {"--keys"}),
    ],
    ids=["verify", "repair"],
)
def test_all_options_of_a_command_are_documented(command, text, without):
    assert set(re.findall(r"`(--[\w-]+)", text)) == options_of(command) - SHARED - without


def test_the_options_of_a_rollbacks_deletion_are_documented():
    documented = set(re.findall(r"^\| `(--[\w-]+)` \|", text_of("rollback"), re.MULTILINE))
    others = {"--prefix", "--records-option", "--json", "--audit-log"}
    assert options_of(rollback.delete) - SHARED - others == documented


@pytest.mark.parametrize(
    ("page", "command", "spelled"),
    [("cost", cost.cost, {"--class", "--no-scan", "--egress"}), ("report", report.report, set())],
)
def test_a_page_names_only_options_that_there_are(page, command, spelled):
    assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", text_of(page))) <= options_of(command) | spelled


@pytest.mark.parametrize("page", ["rollback", "migration"])
def test_the_commands_of_a_rollback_have_the_options_that_pages_name(page):
    functions = {"plan": rollback.plan, "list": rollback.list_objects, "delete": rollback.delete}
    text = text_of(page).replace("\\\n", " ")
    named = re.findall(r"offload rollback (plan|list|delete)([^`\n]*)", text)
    assert named
    for command, arguments in named:
        assert set(re.findall(r"--[\w-]+", arguments)) <= options_of(functions[command])


# --- fields of reports -------------------------------------------------------------------------


def test_the_fields_of_a_verifications_report_are_documented(tmp_path):
    with open_store(tmp_path) as tier:
        made = verify.report_to_json(Verification(tier), {"tier": "x", "deep": False, "records": False})
    shown = names_in(text_of("verify").partition("## The report")[2].partition("## The state")[0])
    assert {*made, *made["summary"](), *Finding(code=Code.GAP, what="x").to_json()} <= shown


def test_the_actions_and_fields_of_a_repair_are_documented():
    text = text_of("repair")
    assert {action.value for action in Action} <= names_in(text)
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier, quarantine=True)
    shown = names_in(text.partition("The report has")[2].partition("## In Python")[0])
    assert set(repair.to_json(planned, None)) <= shown
    notes = [data for key, data in contents_of(tier).items() if key.endswith(".json")]
    noted = names_in(text.partition("one JSON object:")[2].partition("## Options")[0]) - {"failOnDataLoss"}
    assert all(set(json.loads(note)) == noted for note in notes)


def test_the_fields_of_a_scans_estimate_are_documented():
    assert set(fields(ScanEstimate)) <= names_in(text_of("cost"))


# --- defaults ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "suite", "base"),
    [
        ("conformance", DriverConformance, SuiteBase),
        ("hot-tier", WritableLedgerStoreConformance, LedgerSuiteBase),
        ("metadata-stores", MetadataStoreConformance, MetadataSuiteBase),
    ],
)
def test_the_attributes_of_a_suite_have_their_defaults(page, suite, base):
    shown = rows(text_of(page), "| Attribute | Default | Meaning |")
    assert list(shown) == list(base.__annotations__)
    for name, default in shown.items():
        assert default.strip("`") == f"{getattr(suite, name)}".removesuffix(".0")


def test_the_options_of_the_hot_tier_have_their_defaults():
    assert rows(text_of("hot-tier"), "| Option | Default | Meaning |") == {
        each.name: "required" if each.default is each.empty else f"`{each.default}`"
        for each in parameters(FileLedgerStore)
    }


def test_the_options_of_live_clusters_have_their_defaults():
    shown = rows(text_of("live-clusters"), "| Option | Default | Meaning |")
    own = [each for each in parameters(BookKeeperLedgerStore) if not each.name.startswith("zookeeper_")]
    assert shown == {
        each.name: "required" if each.default is each.empty else f"`{each.default}`" for each in own
    }


def test_the_settings_of_tiering_have_their_defaults():
    shown = rows(section("tiering", "Settings"))
    defaults = LiveSettings().model_dump()
    assert list(shown) == [f"live.{name}" for name in defaults]
    for name, default in defaults.items():
        assert shown[f"live.{name}"] == (f"{default:g}" if isinstance(default, float) else "none")


def test_the_options_of_zookeeper_are_those_of_the_metadata_store():
    passed_on = {
        each.name.removeprefix("zookeeper_")
        for each in parameters(BookKeeperLedgerStore)
        if each.name.startswith("zookeeper_")
    }
    own = {each.name for each in parameters(ZooKeeperStore)}
    assert passed_on == own - {"url", "timeout_s", "attempts"}


@pytest.mark.parametrize(
    ("title", "store"), [("Admin REST", AdminRecords), ("ZooKeeper", ZooKeeperStore), ("SQLite", SqliteStore)]
)
def test_the_options_of_a_metadata_store_have_their_defaults(title, store):
    shown = rows(section("metadata-stores", title))
    taken = parameters(store)[1:]
    assert list(shown) == [each.name for each in taken]
    for each in taken:
        if shown[each.name].startswith("`") and each.default is not None:
            assert shown[each.name] == f"`{str(each.default).lower()}`"


@pytest.mark.parametrize(
    ("page", "driver"),
    [
        ("s3", S3Driver),
        ("gcs", GcsDriver),
        ("azure", AzureDriver),
        ("hdfs", HdfsDriver),
        ("filesystem", FilesystemDriver),
        ("fsspec", FsspecDriver),
    ],
)
def test_the_options_of_a_driver_have_their_defaults_and_other_names(page, driver):
    shown = {}
    for line in section(f"drivers/{page}", "Options").splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            shown |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1:])
    options = inspect.signature(driver).parameters
    assert list(shown) == list(options)
    others = rows(section(f"drivers/{page}", "Names of other tools"), "| Option | Other names |")
    for option, (default, pulsars, meaning) in shown.items():
        assert meaning
        wanted = options[option].default
        if isinstance(wanted, bool | int | float):
            expected = str(wanted).lower() if isinstance(wanted, bool) else f"{wanted:g}"
            assert default.strip("`") == expected, option
        aliases = {alias for alias, of in getattr(driver, "option_aliases", {}).items() if of == option}
        theirs = pulsars + others.get(option, "")
        assert set(re.findall("`(.*?)`", theirs)) <= aliases <= set(re.findall("`(.*?)`", theirs + meaning))
    assert others.keys() <= shown.keys()
    pointless = {
        name: "any" if value is None else f"`{value}`"
        for name, value in getattr(driver, "pointless_options", {}).items()
    }
    assert rows(section(f"drivers/{page}", "Names of other tools"), "| Name | Value | Why |") == pointless


def test_the_options_of_spark_are_listed_in_their_order_with_their_defaults():
    row = re.compile(r"^\| `([\w.*]+)` \| ([^|]+) \| .+ \|$", re.MULTILINE)
    shown = row.findall(text_of("spark"))
    expected = list(KNOWN)
    expected.insert(2, f"{STORAGE_PREFIX}*")
    for name, prefix in (("hot", HOT_PREFIX), ("records", RECORDS_PREFIX)):
        expected.insert(expected.index(name) + 1, f"{prefix}*")
    assert [name for name, _ in shown] == expected
    described = (*dataclasses.fields(ScanOptions), *dataclasses.fields(SourceOptions))
    defaults = {field.name: field.default for field in described}
    for name, default in shown:
        if default.startswith("`"):
            target, convert = KNOWN[name]
            assert convert(default.strip("` "), name) == defaults[target], name


# --- layers ------------------------------------------------------------------------------------

LAYERS = {
    entry.name: entry
    for entry in entry_points(group="pulsar_offload.layers")
    if entry.module.startswith("offload_layers.")
}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def value(text):
    words = {"none": None, "empty": "", "true": True, "false": False}
    if text in words:
        return words[text]
    number, _, unit = text.partition(" ")
    return float(number) * UNITS.get(unit, 1)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_options_of_a_layer_have_their_defaults(layer):
    shown = rows(section("layers", layer), "| Option | Default | Meaning |")
    assert {name: value(text) for name, text in shown.items()} == {
        option.name: option.default for option in parameters(LAYERS[layer].load())[1:]
    }


def test_every_layer_is_listed_in_the_recommended_order():
    text = text_of("layers")
    listed = re.findall(r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(LAYERS)
    order = re.findall(r"`([\w-]+)`", section("layers", "Order").partition(", then the driver")[0])
    assert order == listed
    assert re.findall(r"^## ([a-z-]+)$", text, re.MULTILINE) == listed
    assert f"`{MARKER}`" in section("layers", "retry")


# --- contracts ---------------------------------------------------------------------------------

HOOKS = [name for name in vars(TierHooks) if not name.startswith("_")]


def test_exactly_the_hooks_that_there_are_are_documented():
    assert re.findall(r"^### `(\w+)`$", text_of("hooks"), re.MULTILINE) == HOOKS
    assert f"`hook_spec_version = {HOOK_SPEC_VERSION}`" in text_of("hooks")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_a_section_with_its_arguments_and_says_whether_it_is_optional(hook):
    text = text_of("hooks")
    (about,) = re.findall(rf"^### `{hook}`$\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    arguments = [each.name for each in parameters(getattr(TierHooks, hook)) if each.name != "self"]
    assert about.lstrip().startswith(f"`{hook}({', '.join(arguments)})`")
    assert ("**optional**" in about) == (hook in OPTIONAL_HOOKS)
    required = "no" if hook in OPTIONAL_HOOKS else "yes"
    assert re.search(rf"^\| \[`{hook}`\]\(#{hook}\) \| .* \| {required} \|$", text, re.MULTILINE)


def test_the_methods_of_metadata_stores_are_those_of_the_contract():
    text = section("metadata-stores", "A store of your own")
    shown = re.findall(r"^\| `(\w+\(.*?\))` \| (\w+) \|", text, re.MULTILINE)
    contracts = (("both", MetadataStore), ("writable", WritableMetadataStore))
    assert shown == [(method, which) for which, contract in contracts for method in methods(contract)]


def test_the_steps_of_records_have_these_arguments():
    text = section("metadata-stores", "Writing")
    for name, arguments in re.findall(r"^\| `(\w+)\((.*?)\)` \|", text, re.MULTILINE):
        assert arguments.split(", ") == [each.name for each in parameters(getattr(records, name))]


@pytest.mark.parametrize(
    ("page", "group", "installed"),
    [
        ("hot-tier", registry.LEDGER_STORES, {"bookkeeper", "embedded"}),
        ("metadata-stores", registry.METADATA_STORES, {"http", "https", "sqlite", "zk"}),
    ],
)
def test_the_stores_are_those_that_are_installed(page, group, installed):
    assert f"`{group}`" in text_of(page)
    assert {entry.name for entry in entry_points(group=group)} == installed


# --- columns and errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "columns"),
    [
        ("Messages, by default", MESSAGE_COLUMNS),
        ("Messages, on request", EXTRA_MESSAGE_COLUMNS),
        ("Entries", ENTRY_COLUMNS),
    ],
)
def test_columns_and_their_types_are_those_of_the_schema(title, columns):
    text = section("columns", title)
    shown = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| .+ \|$", text, re.MULTILINE)
    # Arrow's own text of a type, without the names that it gives to a map's children
    assert shown == [
        (name, re.sub(r" \('[^)]*'\)", "", str(kind)), from_arrow_type(kind).simpleString())
        for name, kind in columns.items()
    ]
    assert len(shown) == text.count("\n| `")


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OffloadError)]


def test_every_error_is_documented_as_it_is_in_their_order():
    row = re.compile(r"^\| `(\w+)` \| `(\w+)` \| .*\S.* \| (yes|no) \|$", re.MULTILINE)
    shown = row.findall(text_of("errors"))
    assert [name for name, _, _ in shown] == [kind.__name__ for kind in ERRORS]
    for kind, (_, also, retryable) in zip(ERRORS, shown, strict=True):
        assert also in {base.__name__ for base in kind.__mro__[1:]}
        assert retryable == ("yes" if kind.retryable else "no"), kind


def test_every_field_of_an_error_is_documented():
    wrong = OffloadError(
        "x", key="k", ledger_id=1, block=1, entry_id=1, offset=1, expected=1, found=2, hint="h"
    )
    assert set(wrong.fields()) <= names_in(text_of("errors").partition("\n| Error |")[0])
