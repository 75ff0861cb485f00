"""Topic names: parsed from the forms that people and records use, and turned into names of files.

Accepted: `persistent://t/n/topic`, `t/n/topic`, the managed ledger's `t/n/persistent/topic`; returned:
`persistent://t/n/topic[-partition-N]`. In a managed ledger's name the topic is URL-encoded, as by Pulsar's `Codec`.
With `persistent://` before it a name may have more parts: old topics have their cluster in it, and a topic's own name
may hold a `/`.

A name of a file is percent-escaped. If it is too long for a file system, `%7E` and a digest replace its end. No text
is escaped to `%7E`, so that two texts never get the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote_plus

from offload_hooks.errors import OptionError

UNKNOWN_TOPIC = "(unknown topic)"
"""The label of objects that name no topic."""

_DOMAIN = "persistent://"
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<number>0|[1-9][0-9]{0,8})", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic: its full name, `persistent://tenant/namespace/topic`."""

    full: str

    @property
    def base(self) -> str:
        """The partitioned topic's name; the name itself if it is no partition."""
        match = _PARTITION.fullmatch(self.full)
        return match["base"] if match else self.full

    @property
    def partition(self) -> int:
        """The partition's number, −1 if the topic has no partitions."""
        match = _PARTITION.fullmatch(self.full)
        return int(match["number"]) if match else -1

    def __str__(self) -> str:
        return self.full


def parse_topic(text: str) -> TopicName:
    """Parse a topic's name; `OptionError` if it has none of the accepted forms."""
    name = text.removeprefix(_DOMAIN)
    parts = name.split("/")
    is_full = text.startswith(_DOMAIN)
    if not is_full and len(parts) == 4 and parts[2] == "persistent" and all(parts):
        return topic_of_managed_ledger(name)
    if "://" in name or len(parts) < 3 or (len(parts) > 3 and not is_full) or not all(parts):
        raise OptionError(
            "this is not the name of a persistent topic",
            expected="persistent://tenant/namespace/topic or tenant/namespace/topic",
            found=text,
        )
    return TopicName(f"{_DOMAIN}{name}")


def topic_of_managed_ledger(name: str) -> TopicName:
    """The topic of a managed ledger's name, `tenant/namespace/persistent/encoded topic`.

    A name of another form, which Pulsar's managed ledgers do not have, is taken as it is.
    """
    namespace, separator, topic = name.partition("/persistent/")
    return TopicName(f"{_DOMAIN}{namespace}/{unquote_plus(topic)}" if separator else name)


def managed_ledger_of_topic(topic: TopicName) -> str:
    """The name of a topic's managed ledger, `tenant/namespace/persistent/encoded topic`, as Pulsar's `Codec` has it.

    Old topics, whose names have their cluster in them, are taken for new ones with a `/`.
    """
    name = topic.full.removeprefix(_DOMAIN)
    tenant, _, rest = name.partition("/")
    namespace, separator, local = rest.partition("/")
    if not separator:
        return name
    return f"{tenant}/{namespace}/persistent/{quote_plus(local, safe='*').replace('~', '%7E')}"


def is_chosen(topic: TopicName, chosen: Sequence[TopicName]) -> bool:
    """Return whether a topic is one of these, or a partition of one; without any, True."""
    return not chosen or any(each.full in (topic.full, topic.base) for each in chosen)


def topic_selection(
    topics: Sequence[TopicName], namespaces: Sequence[str] = ()
) -> Callable[[TopicName | None], bool] | None:
    """A predicate: a topic is one of these, or a partition of one, and in one of these namespaces. None without any.

    It is false for objects without a topic.

    Raises:
        OptionError: a namespace has another form than `tenant/namespace`.
    """
    for each in namespaces:
        if each.count("/") != 1 or not all(each.split("/")):
            raise OptionError("this is no namespace", expected="tenant/namespace", found=each)
    if not topics and not namespaces:
        return None
    folders = tuple(f"{_DOMAIN}{each}/" for each in namespaces)

    def is_selected(topic: TopicName | None) -> bool:
        if topic is None or not is_chosen(topic, topics):
            return False
        return not folders or topic.full.startswith(folders)

    return is_selected


MAX_BYTES = 241
"""Most bytes of a whole name: file systems take 255, and the drivers for files and HDFS put a sidecar beside it."""

_MARK = "%7E"
_DIGEST_CHARACTERS = 32


def name_of(text: str, *, before: str = "", after: str = "") -> str:
    """The name of a file or folder for a text: `before`, the text escaped, `after`."""
    escaped = quote(text, safe="")
    room = MAX_BYTES - len(before) - len(after)
    if len(escaped) > room:
        room -= len(_MARK) + _DIGEST_CHARACTERS
        end = 0
        for character in text:
            room -= len(quote(character, safe=""))
            if room < 0:
                break
            end += 1
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        escaped = f"{quote(text[:end], safe='')}{_MARK}{digest}"
    return f"{before}{escaped}{after}"
