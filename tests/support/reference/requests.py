"""The descriptions of the service's requests, by method and path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestText:
    """A request: what it does, the JSON that it takes and gives, and the parameters that it may have."""

    what: str
    gives: str | None = None
    takes: str | None = None
    status: int = 200
    content: str = "application/json"
    asks: tuple[str, ...] = ()


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/persistent/{tenant}/{namespace}"
_NONE = "/admin/v2/non-persistent/{tenant}/{namespace}"
_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_APPLIED = ("applied",)


def _levels(path, whose):
    return {
        f"GET {path}/offloadPolicies": RequestText(
            what=f"the offload policies of {whose}; with `applied=true` all that hold",
            gives="object",
            asks=_APPLIED,
        ),
        f"POST {path}/offloadPolicies": RequestText(
            what=f"set the offload policies of {whose}", takes="object", status=204
        ),
        f"DELETE {path}/offloadPolicies": RequestText(
            what=f"remove the offload policies of {whose}", status=204
        ),
        f"GET {path}/retention": RequestText(
            what=f"the retention of {whose}; with `applied=true` the one that holds",
            gives="object",
            asks=_APPLIED,
        ),
        f"POST {path}/retention": RequestText(
            what=f"set the retention of {whose}", takes="object", status=204
        ),
        f"DELETE {path}/retention": RequestText(what=f"remove the retention of {whose}", status=204),
    }


def _number(name, what):
    return {
        f"GET {_NAMESPACE}/{name}": RequestText(what=f"{what} of a namespace", gives="integer"),
        f"PUT {_NAMESPACE}/{name}": RequestText(
            what=f"set {what} of a namespace", takes="integer", status=204
        ),
    }


REQUESTS = {
    "GET /healthz": RequestText(
        what="whether the service answers, as liveness probes ask", gives="string", content="text/plain"
    ),
    "GET /readyz": RequestText(
        what="whether the service and its metadata store answer, as readiness probes ask",
        gives="string",
        content="text/plain",
    ),
    "GET /admin/v2/brokers/health": RequestText(
        what="the same, as `pulsar-admin` asks it", gives="string", content="text/plain"
    ),
    "GET /metrics": RequestText(
        what="[metrics](metrics.md) for Prometheus", gives="string", content="text/plain"
    ),
    "GET /": RequestText(what="leads to `/ui`", gives="string", content="text/html", status=307),
    "GET /ui": RequestText(
        what="[a page](../report.md#in-the-service) of how offloads stand",
        gives="string",
        content="text/html",
    ),
    "GET /ui/status": RequestText(
        what="what that page shows, of all topics or those of a `namespace`",
        gives="object",
        asks=("namespace",),
    ),
    "GET /admin/v2/tenants": RequestText(what="the tenants", gives="array"),
    "GET /admin/v2/namespaces/{tenant}": RequestText(what="a tenant's namespaces", gives="array"),
    f"GET {_NAMESPACE}": RequestText(what="all that a namespace says", gives="object"),
    **_levels(_NAMESPACE, "a namespace"),
    f"DELETE {_NAMESPACE}/removeOffloadPolicies": RequestText(
        what="remove the offload policies of a namespace, as older clients ask it", status=204
    ),
    **_number("offloadThreshold", "the threshold in bytes"),
    **_number("offloadThresholdInSeconds", "the threshold in seconds"),
    **_number("offloadDeletionLagMs", "the deletion lag in ms"),
    f"DELETE {_NAMESPACE}/offloadDeletionLagMs": RequestText(
        what="remove the deletion lag of a namespace", status=204
    ),
    f"GET {_NAMESPACE}/topics": RequestText(
        what="a namespace's topics and partitions", gives="array", asks=("mode",)
    ),
    f"GET {_TOPICS}": RequestText(what="the same", gives="array"),
    f"GET {_TOPICS}/partitioned": RequestText(what="a namespace's partitioned topics", gives="array"),
    f"GET {_NONE}": RequestText(what="none: there are no topics that are not persistent", gives="array"),
    f"GET {_NONE}/partitioned": RequestText(what="none, likewise", gives="array"),
    **_levels(f"{_TOPICS}/{{topic}}", "a topic"),
    f"GET {_TOPICS}/{{topic}}/partitions": RequestText(
        what="how many partitions a topic has", gives="object"
    ),
    f"GET {_TOPICS}/{{topic}}/internal-info": RequestText(
        what="a topic's record: its ledgers, attempts", gives="object"
    ),
    f"GET {_TOPICS}/{{topic}}/internalStats": RequestText(
        what="a topic's ledgers, and which are offloaded", gives="object"
    ),
    f"PUT {_TOPICS}/{{topic}}/offload": RequestText(
        what="offload a topic up to a message id (`ledgerId`, `entryId`)", takes="object", status=204
    ),
    f"GET {_TOPICS}/{{topic}}/offload": RequestText(
        what="how the topic's last offload stands", gives="object"
    ),
    "GET /admin/v3/transactions/transactionBufferStats/{tenant}/{namespace}/{topic}": RequestText(
        what="how a topic's transactions stand", gives="object"
    ),
    f"GET {_SCHEMAS}/schema": RequestText(what="a topic's newest schema", gives="object"),
    f"GET {_SCHEMAS}/schema/{{version}}": RequestText(what="one version of it", gives="object"),
    f"GET {_SCHEMAS}/schemas": RequestText(what="all versions of it", gives="object"),
}
