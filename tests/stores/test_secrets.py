"""No credential is shown: not by a repr, a log, an error, a Spark plan or Spark's UI."""

from __future__ import annotations

import logging
import pickle

import pytest
from pyspark.errors import PySparkException
from stores import Store, new_store

from offload_hooks.errors import OffloadError

pytestmark = pytest.mark.sampled(6)

SECRET = "hunter2secret"  # of characters that base64 and URLs leave alone


def with_secret(store, name):
    """The store with options that no server accepts, all of which hold the secret."""
    options = {
        "s3": {"access_key_id": "someone", "secret_access_key": SECRET, "session_token": SECRET},
        "azure": {
            "connection_string": store.options.get("connection_string", "").replace(
                "Eby8vdM02", f"{SECRET}/1"
            )
        },
        "gcs": {"token": SECRET},
    }[name]
    kept = {key: value for key, value in store.options.items() if key != "anonymous"}
    return Store(name=store.name, url=store.url, endpoint=store.endpoint, options=kept | options)


@pytest.fixture(params=["s3", "azure", "gcs"])
def secretive(request, tmp_path):
    return with_secret(new_store(request.param, request.getfixturevalue, tmp_path), request.param)


def test_texts_and_errors_and_logs_do_not_show_it(secretive, caplog):
    caplog.set_level(logging.DEBUG)
    with secretive.open(layers=["retry:attempts=2"]) as tier:
        texts = [repr(tier), str(tier), repr(tier.describe()), repr(vars(tier)["_spec"])]
        for call in (
            lambda: list(tier.list_objects()),
            lambda: tier.stat("a"),
            lambda: tier.read_range("a", 0, 1),
            lambda: tier.write_index("a", b"x"),
            lambda: tier.begin_data("a"),
            lambda: tier.delete(["a"]),
        ):
            try:
                call()
            except OffloadError as error:
                texts += [str(error), repr(error), repr(pickle.loads(pickle.dumps(error)))]
                cause = error.__cause__
                while cause is not None:
                    texts += [str(cause), repr(cause)]
                    cause = cause.__cause__
    assert SECRET in str(secretive.options)
    assert not [text for text in texts if SECRET in text]
    ours = [record for record in caplog.records if record.name.startswith("offload")]
    assert not [record for record in ours if SECRET in record.getMessage()]


@pytest.mark.spark
def test_plans_and_the_ui_of_spark_do_not_show_it(spark, secretive):
    reader = spark.read.format("pulsar_offload").options(**secretive.spark_options())
    # The plan is made where the query is; a store that refuses the credentials fails there, which is fine.
    texts = []
    try:
        frame = reader.option("topic", "acme/cold/nosuch").load()
        texts += [str(frame), repr(frame), frame._jdf.queryExecution().toString()]
        frame.collect()
    except PySparkException as error:
        texts.append(str(error))
    shown = spark._jsparkSession.sharedState().statusStore().executionsList()
    for i in range(shown.size()):
        texts.append(shown.apply(i).physicalPlanDescription() + shown.apply(i).description())
    assert texts
    assert not [text for text in texts if SECRET in text]
