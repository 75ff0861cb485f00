"""The Spark source where executors are processes of their own, and with a driver that a stranger installed."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from commands import install_into
from golden import TOPICS, topic_rows
from tiers import lay_out_broker_objects

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "third_party_driver"


def job(url, folder, **environment):
    """The job, run to its end; its working files go to `folder`."""
    return subprocess.run(
        [sys.executable, str(HERE / "cluster_job.py"), url],
        cwd=folder,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_job(url, folder, **environment):
    """What the job prints."""
    done = job(url, folder, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_executors_of_their_own_read_the_same(java, tmp_path):
    tier = tmp_path / "tier"
    lay_out_broker_objects(tier)
    lines = run_job(str(tier), tmp_path).splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines)
    assert int(counts.pop("partitions")) >= 5
    expected = {topic: len(topic_rows(topic)) for topic in TOPICS if topic != "chunk"}
    assert counts == {f"persistent://acme/cold/{topic}": str(count) for topic, count in expected.items()}


def pretend(site, name, version):
    """Put into `site` what `importlib.metadata` takes for a distribution of this version."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_executors_with_another_version_of_this_package_say_so(java, tmp_path):
    pretend(tmp_path / "site", "pulsar-offload", "0.0.1")
    lay_out_broker_objects(tmp_path / "tier", topics=["jstring"])
    done = job(str(tmp_path / "tier"), tmp_path, EXECUTORS_PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode != 0
    ours = version("pulsar-offload")
    assert "VersionMismatchError: an executor of Spark has other versions than its driver" in done.stderr
    assert f"expected pulsar-offload {ours}, found pulsar-offload 0.0.1" in done.stderr


@pytest.mark.install
def test_a_strangers_driver_is_installed_found_and_read_through_spark(java, tmp_path):
    site, tier, archive = tmp_path / "site", tmp_path / "tier", tmp_path / "tier.zip"
    install_into(site, EXAMPLE)
    lay_out_broker_objects(tier, topics=["jstring", "jkv-inline"])
    with zipfile.ZipFile(archive, "w") as file:
        for path in tier.iterdir():
            if path.is_file():
                file.write(path, path.name)
    printed = run_job(f"shelf://{archive}", tmp_path, PYTHONPATH=str(site))
    assert "persistent://acme/cold/jkv-inline 200" in printed
    assert "persistent://acme/cold/jstring 100" in printed
