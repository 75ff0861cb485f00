"""The Airflow provider: its DAGs run by Airflow itself, against a tier, records and `offload serve`."""

import json
import re

import pytest
from airflow_home import AirflowHome
from pages import World

from offload_core.maintenance.verify import Summary

pytestmark = pytest.mark.sampled(4)

SECRET = "wJalrXUtnFEMI-geheim"

DAG = """
from airflow.sdk import DAG, timezone
from airflow_provider_pulsar_offload.export import ExportTopicsOperator
from airflow_provider_pulsar_offload.offload import OffloadTopicOperator
from airflow_provider_pulsar_offload.sensor import OffloadedSensor
from airflow_provider_pulsar_offload.verify import VerifyTierOperator

ORDERS, HOT = "acme/cold/orders", "acme/n/orders"

with DAG("d", schedule=None, start_date=timezone.datetime(2026, 1, 1)) as dag:
    offload = OffloadTopicOperator(task_id="offload", topic=HOT, poll_interval_s=0.1)
    again = OffloadTopicOperator(task_id="again", topic=ORDERS, kept_bytes="{{ 2 ** 40 }}")
    late = OffloadedSensor(
        task_id="late", topic=HOT, position="{{ params.position }}", poke_interval=1,
        params={"position": "POSITION"},
    )
    of_time = OffloadedSensor(task_id="of_time", topic=ORDERS, time="{{ data_interval_end }}", offload_conn_id="kept")
    too_late = OffloadedSensor(
        task_id="too_late", topic=ORDERS, time="2099-01-01T00:00:00Z", poke_interval=1, timeout=0, soft_fail=True
    )
    unknown = OffloadedSensor(task_id="unknown", topic="acme/cold/none", position="1:1")
    verify = VerifyTierOperator(task_id="verify", deep=True, with_records=True, state="{{ params.state }}",
                                params={"state": "STATE"}, offload_conn_id="kept")
    wrong = VerifyTierOperator(task_id="wrong", offload_conn_id="damaged", retries=3)
    harmless = VerifyTierOperator(task_id="harmless", offload_conn_id="damaged", fail_on="never")
    export = ExportTopicsOperator(task_id="export", topics=ORDERS, to="TARGET", offload_conn_id="kept",
                                  scan={"schemas": "SCHEMAS"})
    late  # which waits while the next one offloads
    offload >> again
    verify >> export
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory, request):
    made = World(tmp_path_factory.mktemp("world"), request.getfixturevalue)
    yield made
    made.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return AirflowHome(tmp_path_factory.mktemp("airflow"))


@pytest.mark.nightly
def test_its_tasks_do_what_they_say(world, home):
    damaged = world.folder / "damaged"
    damaged.mkdir()
    for path in world.tier_path.iterdir():
        if path.is_file() and not path.name.endswith("-index"):
            (damaged / path.name).write_bytes(path.read_bytes())
    settings = {
        "pulsar_offload_default": {
            "url": str(world.tier_path),
            "admin": world.service,
            "admin_options": {"token": SECRET},
        },
        "kept": {"url": str(world.tier_path), "records": f"sqlite:{world.folder}/kept/records.db"},
        "damaged": {"url": str(damaged)},
    }
    last = world.environment.records.read("acme/n/persistent/orders")
    first_ledger = last.info.in_order[0]
    code = DAG.replace("POSITION", f"{first_ledger.ledger_id}:{(first_ledger.info.entries or 0) - 1}")
    code = code.replace("STATE", f"{world.folder}/verified.db").replace("TARGET", f"{world.folder}/exported")
    code = code.replace("SCHEMAS", f"{world.tier_path}/schemas")

    ran = home.run(code, settings)

    assert ran.states == {
        "offload": "success",
        "again": "success",
        "late": "success",
        "of_time": "success",
        "too_late": "skipped",
        "unknown": "failed",
        "verify": "success",
        "wrong": "failed",
        "harmless": "success",
        "export": "success",
    }, ran.log
    assert list(ran.results["offload"].values()) == [f"{last.info.in_order[-1].ledger_id}:0"]
    assert ran.results["again"] == {}
    assert ran.results["export"]["rows"] == 7
    assert (
        len(list((world.folder / "exported").rglob("[!_]*.parquet"))) == ran.results["export"]["files"] == 1
    )
    assert set(ran.results["verify"]) == set(Summary().to_json())
    assert (ran.results["verify"]["errors"], ran.results["verify"]["warnings"]) == (0, 0)
    assert ran.results["verify"]["deep_objects"] > 0
    assert (world.folder / "verified.db").exists()
    assert ran.results["harmless"]["warnings"] + ran.results["harmless"]["errors"] > 0
    assert "object.no-index" in ran.log or "no-index" in ran.log
    assert "UnknownTopicError" in ran.log
    assert SECRET not in ran.log
    assert world.environment.records.read("acme/n/persistent/orders").info.in_order[0].has_complete_copy


@pytest.mark.nightly
def test_a_secret_is_masked_and_a_setting_that_there_is_not_refused(home):
    code = """
from airflow.sdk import DAG, task
from airflow.sdk.log import redact
from airflow_provider_pulsar_offload.hook import OffloadHook

with DAG("d", schedule=None) as dag:
    @task
    def shows():
        settings = OffloadHook().settings()
        return [str(settings), redact(str(settings.options))]  # as logs are shown
    @task
    def refused():
        OffloadHook("other").settings()
    @task
    def tests():
        return list(OffloadHook("here").test_connection()) + list(OffloadHook("nowhere").test_connection())
    shows(), refused(), tests()
"""
    extra = {"url": "x", "options": {"secret_access_key": SECRET, "region": "eu-west-7"}}
    ran = home.run(
        code,
        {
            "pulsar_offload_default": extra,
            "other": {"uri": "x"},
            "here": {"url": "/"},
            "nowhere": {"url": "nowhere:///x"},
        },
    )
    assert ran.states == {"shows": "success", "refused": "failed", "tests": "success"}, ran.log
    assert "options" not in ran.results["shows"][0]
    assert SECRET not in str(ran.results["shows"]) + ran.log
    assert "'region': 'eu-west-7'" in ran.results["shows"][1]
    assert "has other settings" in ran.log
    assert ran.results["tests"][0::2] == [True, False]


def test_airflow_finds_the_provider(home):
    listed = json.loads(home.ask("providers", "list", "--output", "json"))
    (ours,) = (each for each in listed if each["package_name"] == "pulsar-offload")
    assert re.match(r"\d", ours["version"])
    hooks = json.loads(home.ask("providers", "hooks", "--output", "json"))
    assert [
        each["conn_id_attribute_name"] for each in hooks if each["connection_type"] == "pulsar_offload"
    ] == ["offload_conn_id"]
