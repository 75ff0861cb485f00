"""Tables of Spark's catalogue, classic and Connect: they read what `scan` reads, and keep no secrets."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tiers import lay_out_broker_objects

from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.interfaces.engines.spark.tables import keep_options, options_of_read, options_of_table
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, scan

pytestmark = [pytest.mark.spark, pytest.mark.sampled(12)]

PLACE = ("__topic", "__ledgerId", "__entryId", "__batchIndex")
TABLE = {"provider": "pulsar_offload", "owner": "root"}


@pytest.fixture
def tier(tmp_path):
    lay_out_broker_objects(tmp_path / "tier", topics=["json", "jstring"])
    return tmp_path / "tier"


@pytest.fixture
def created(session):
    names = []

    def create(how):
        names.append(f"offloaded_{len(names)}")
        session.sql(f"CREATE TABLE {names[-1]} USING pulsar_offload {how}")
        return names[-1]

    yield create
    for name in names:
        session.sql(f"DROP TABLE {name}")


def rows_of(table):
    rows = table.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: [row[name] for name in PLACE])


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "how",
    [
        "OPTIONS (path '{tier}', topic 'acme/cold/json')",
        "OPTIONS (topic 'acme/cold/json') LOCATION '{tier}'",
        "OPTIONS (driver 'local', storage.root '{tier}', topic 'acme/cold/json', maxPartitionBytes '5000')",
    ],
)
def test_a_table_has_the_rows_of_its_options(session, created, tier, how):
    with open_tier(tier) as reader:
        expected = rows_of(scan(reader, topics=["acme/cold/json"]).to_table())
    name = created(how.format(tier=tier))
    assert rows_of(session.sql(f"SELECT * FROM {name}").toArrow()) == expected
    assert session.sql(f"SELECT __key FROM {name} WHERE __entryId < 0").collect() == []
    assert session.table(name).groupBy("__topic").count().collect() == [
        ("persistent://acme/cold/json", len(expected))
    ]


def test_options_of_a_query_go_over_those_of_the_table(session, created, tier):
    name = created(f"OPTIONS (path '{tier}', topic 'acme/cold/json')")
    assert session.read.option("endingOffsets", "earliest").table(name).count() == 0
    assert session.table(name).count() > 0


def test_a_stream_reads_a_table(session, created, tier, tmp_path):
    name = created(f"OPTIONS (path '{tier}', topic 'acme/cold/jstring', startingOffsets 'earliest')")
    writer = session.readStream.table(name).writeStream.format("memory").queryName("of_table")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(300)
    assert session.table("of_table").count() == 100


def test_what_a_table_reads_stays_when_it_is_dropped_or_written_to(session, tier):
    before = files_of(tier)
    session.sql(
        f"CREATE TABLE dropped USING pulsar_offload OPTIONS (path '{tier}', topic 'acme/cold/jstring')"
    )
    for write in (
        "TRUNCATE TABLE dropped",
        "INSERT INTO dropped SELECT * FROM dropped",
        "DELETE FROM dropped",
    ):
        with pytest.raises(PySparkException):
            session.sql(write)
    session.sql("DROP TABLE dropped")
    assert files_of(tier) == before


def test_a_table_keeps_no_secrets(session, tier):
    with pytest.raises(PySparkException, match=r"a table keeps no secrets.*found storage\.secret_access_key"):
        session.sql(
            "CREATE TABLE secretive USING pulsar_offload "
            f"OPTIONS (path '{tier}', storage.secret_access_key 'hunter2')"
        )
    assert not session.catalog.tableExists("secretive")


def test_a_table_with_columns_of_its_own_says_how_to_create_it(session, tier):
    session.sql(f"CREATE TABLE of_columns (__entryId BIGINT) USING pulsar_offload OPTIONS (path '{tier}')")
    with pytest.raises(PySparkException, match="only if it was created without columns"):
        session.table("of_columns").collect()
    session.sql("DROP TABLE of_columns")


def test_options_are_known_as_those_of_a_table_by_what_a_catalogue_adds():
    given = TABLE | {"location": "file:/x", "path": "file:/x", "option.topic": "a/b/c"}
    assert options_of_table(given) == {"path": "file:/x", "topic": "a/b/c"}
    assert options_of_table(given | {"topic": "a/b/c"}) == {"path": "file:/x", "topic": "a/b/c"}
    assert options_of_table({"path": "x"}) is None


@pytest.mark.parametrize(
    "secret",
    [
        {"storage.secret_access_key": "hunter2"},
        {"records.token": "hunter2"},
        {"keyprovider": "vault:token=hunter2"},
        {"path": "https://root:hunter2@store/bucket"},
        {"tiers": "s3://bucket?secret_access_key=hunter2"},
    ],
)
def test_secrets_are_refused_and_not_shown(secret):
    with pytest.raises(OptionError, match="a table keeps no secrets") as caught:
        keep_options(StructType([StructField("a", LongType())]), {"path": "x"} | secret)
    assert "hunter2" not in str(caught.value)


def test_the_options_of_a_table_are_kept_beside_its_columns():
    schema = StructType([StructField("a", LongType()), StructField("b", StringType())])
    options = {"path": "x", "records.token_file": "/run/token"}
    kept = StructType.fromJson(keep_options(schema, options).jsonValue())
    assert options_of_read({}, kept) == options
    assert options_of_read({"topic": "a/b/c"}, kept) == options | {"topic": "a/b/c"}
    assert options_of_read({"path": "y"}, kept) == {"path": "y"}
    assert options_of_read({}, schema) == {}


def test_the_schema_of_a_query_keeps_nothing(tmp_path):
    lay_out_broker_objects(tmp_path, topics=["jstring"])
    assert all(not field.metadata for field in PulsarOffloadDataSource({"path": str(tmp_path)}).schema())
