"""Metadata of this provider for Airflow, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

_PACKAGE = "airflow_provider_pulsar_offload"
_NAME = "Pulsar offload"


def provider_info() -> dict[str, Any]:
    """The provider's parts, by the names of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "pulsar-offload",
        "name": _NAME,
        "description": "Offload, verify and export what Apache Pulsar keeps in tiered storage.",
        "versions": [version("pulsar-offload")],
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://pulsar.apache.org", "tags": ["service"]}
        ],
        "operators": [
            {
                "integration-name": _NAME,
                "python-modules": [f"{_PACKAGE}.{name}" for name in ("offload", "verify", "export")],
            }
        ],
        "sensors": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.sensor"]}],
        "hooks": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.hook"]}],
        "connection-types": [
            {
                "connection-type": "pulsar_offload",
                "hook-class-name": f"{_PACKAGE}.hook.OffloadHook",
                "hook-name": _NAME,
            }
        ],
    }
