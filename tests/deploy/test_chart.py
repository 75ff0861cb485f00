"""The Helm chart of `deploy/helm`: what `helm` makes of it, and that the service starts by that."""

import subprocess

import pytest
import yaml
from image import ROOT, arguments, words
from pages import blocks_of
from required import need
from servers import install
from servers.toolchains import ToolchainMissing
from service import KEY, Service

from offload_core.writing.configuration import ServiceSettings, load_configuration

CHART = ROOT / "deploy" / "helm" / "pulsar-offload"
PORT = 8080

pytestmark = [pytest.mark.server, pytest.mark.nightly]  # helm takes minutes to build


@pytest.fixture(scope="module")
def helm():
    try:
        program = install.helm()
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise

    def run(*words):
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture(scope="module")
def rendered(helm):
    def render(*values):
        flags = [flag for value in values for flag in ("--set", value)]
        done = helm("template", "cold", str(CHART), "--namespace", "pulsar", *flags)
        assert done.returncode == 0, done.stderr
        found = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
        return {
            each["kind"] if "-dashboard" not in each["metadata"]["name"] else "dashboard": each
            for each in found
        }

    return render


def pod_of(objects):
    return objects["StatefulSet"]["spec"]["template"]["spec"]


def test_the_chart_is_sound(helm):
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "value", ["command=gc", "replicas=2", "terminationGracePeriodSeconds=10", "tokens.secret="]
)
def test_values_that_would_be_wrong_are_refused(helm, value):
    done = helm("template", "cold", str(CHART), "--set", value)
    assert done.returncode != 0
    assert value.partition("=")[0].partition(".")[2] in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", ["serve", "own"])
def test_the_service_starts_by_what_the_chart_makes_and_its_probes_answer(rendered, command, tmp_path):
    objects = rendered(f"command={command}")
    pod = pod_of(objects)
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == [command, "--config", mounts["config"]]
    settings = objects["ConfigMap"]["data"]["offload.toml"]

    (tmp_path / "key").write_bytes(KEY)
    env = {each["name"]: each["value"] for each in container["env"]}
    env["PULSAR_OFFLOAD_SERVICE__HOST"] = arguments(1)["PULSAR_OFFLOAD_SERVICE__HOST"]
    env = {name: value.replace(mounts["tokens"], str(tmp_path)) for name, value in env.items()}
    within = ("env", *(f"{name}={value}" for name, value in env.items()))
    service = Service(tmp_path, command=(command,), within=within)
    service.config.write_text(settings.replace(mounts["data"], str(tmp_path)))
    with service:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == "http"
            answer = service.ask("GET", asked["path"], headers={"Host": "10.0.0.7:8080"})
            assert answer.status == 200, "as Kubernetes asks: by the pod's address, without a token"
        assert service.ask("GET", "/metrics").status == 401


def test_the_values_that_the_page_shows_are_taken(helm, tmp_path):
    page = ROOT / "docs" / "how-to" / "deploy.md"
    (shown,) = [
        each for each in blocks_of(page, ROOT) if each.heading == "Kubernetes" and each.language == "yaml"
    ]
    (tmp_path / "values.yaml").write_text(shown.code)
    done = helm("template", "cold", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert done.returncode == 0, done.stderr
    (tmp_path / "offload.toml").write_text(yaml.safe_load(shown.code)["config"])
    assert load_configuration(tmp_path / "offload.toml").live.url == "zk://pulsar-zookeeper:2181"


def test_the_pod_has_no_rights_that_it_does_not_need(rendered):
    pod = pod_of(rendered())
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert (words(1, "ENTRYPOINT"), container["ports"][0]["containerPort"]) == (["offload"], PORT)


def test_the_time_to_end_is_longer_than_the_service_may_take(rendered):
    needed = 10 + ServiceSettings().stop_timeout_s
    assert pod_of(rendered())["terminationGracePeriodSeconds"] > needed


def test_a_change_of_the_configuration_starts_the_service_anew(rendered):
    sums = {
        rendered(f"config={text}")["StatefulSet"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]
        for text in ("a=1", "a=2")
    }
    assert len(sums) == 2


def test_monitoring_is_what_the_alerts_and_the_dashboard_are(rendered):
    assert {"ServiceMonitor", "PrometheusRule"}.isdisjoint(rendered())
    flags = [f"monitoring.{name}=true" for name in ("serviceMonitor", "alerts")]
    objects = rendered(*flags)
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["honorLabels"]) == ("/metrics", True)
    ports = [port["name"] for port in objects["Service"]["spec"]["ports"]]
    assert endpoint["port"] in ports
    alerts = yaml.safe_load((ROOT / "deploy" / "alerts" / "pulsar-offload.yaml").read_text())
    assert objects["PrometheusRule"]["spec"] == alerts
    dashboard = rendered("monitoring.dashboard=true")["dashboard"]
    text = (ROOT / "deploy" / "grafana" / "pulsar-offload.json").read_text()
    assert dashboard["data"] == {"pulsar-offload.json": text}
