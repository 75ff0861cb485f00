"""The places of policies in a metadata store, and the tiered read priority that they set.

A namespace's policies are at Pulsar's path, `/admin/policies/<tenant>/<namespace>`. A topic's, which Pulsar has in a
system topic, are in stores of our own at `/admin/topic-policies/` and its managed ledger's name; all partitions of a
topic share one record. Source: docs/policies.md.
"""

from __future__ import annotations

from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import ReadPriority
from offload_hooks.errors import OptionError, placed
from offload_hooks.metadata_stores import MetadataStore, check_path

NAMESPACES = "/admin/policies"
TOPICS = "/admin/topic-policies"


def namespace_of(topic: TopicName) -> str:
    """The namespace of a topic, `tenant/namespace`."""
    return "/".join(topic.full.removeprefix("persistent://").split("/")[:2])


def namespace_path(namespace: str) -> str:
    """The path of a namespace's policies; `OptionError` for a name that is none."""
    if namespace.count("/") != 1:
        raise OptionError("this is no namespace", expected="tenant/namespace", found=namespace)
    return check_path(f"{NAMESPACES}/{namespace}")


def topic_path(topic: TopicName) -> str:
    """The path of a topic's policies."""
    return check_path(f"{TOPICS}/{managed_ledger_of_topic(TopicName(topic.base))}")


def stored_priority(store: MetadataStore, topic: TopicName) -> ReadPriority | None:
    """The tiered read priority of a topic's policies, or of its namespace's; None if neither sets one.

    Raises:
        MetadataError: policies that make no sense, with their path. Others as `MetadataStore.get`.
    """
    from offload_core.metadata.policies.level import NAMESPACE_NAMES, TOPIC_NAMES, parse_level

    for path, names in (
        (topic_path(topic), TOPIC_NAMES),
        (namespace_path(namespace_of(topic)), NAMESPACE_NAMES),
    ):
        found = store.get(path)
        if found is None:
            continue
        with placed(key=path):
            offload = parse_level(bytes(found[0]), names).offload
        priority = (
            None if offload is None else offload.tiered_read_priority or offload.offloaded_read_priority
        )
        if priority is not None:
            return priority
    return None
