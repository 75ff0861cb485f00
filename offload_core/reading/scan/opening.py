"""What opens a task's payloads: the key provider of the options, and for each topic a joiner of its chunks."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

from offload_core.format.messages.chunks import ChunkJoiner
from offload_core.format.messages.encryption import Decryptor
from offload_core.format.messages.opening import EntryCounts, PayloadOpener
from offload_core.reading.scan.chunk_search import LookBack, ReadChunks, settle_pending
from offload_core.reading.scan.entries import read_chunks
from offload_core.reading.scan.runs import runs_around
from offload_core.reading.scan.tasks import KeyProviderSpec, Neighbours, ReadOptions, Run, ScanTask
from offload_core.storage.tier import Tier, make_key_provider, parse_plugin
from offload_hooks.key_providers import KeyProvider

_log = logging.getLogger(__name__)

_TOLD = (
    ("encrypted", "encrypted entries are passed on as ciphertext (column __valueIsRaw)"),
    ("chunks", "chunks of messages are passed on one by one (columns __uuid, __chunkId)"),
    ("no_key", "encrypted entries for which there is no key are left out"),
    ("undecryptable", "encrypted entries do not decrypt"),
    ("incomplete", "chunked messages are incomplete, and left out"),
)


def key_provider_spec(
    given: str | tuple[str, Mapping[str, object]] | KeyProviderSpec | None,
) -> KeyProviderSpec | None:
    """The spec of a key provider: a pair of name and options, or a text, `pem:directory=/keys`.

    Raises:
        OptionError: the text has another form.
    """
    if given is None or isinstance(given, KeyProviderSpec):
        return given
    name, options = parse_plugin(given, "key provider") if isinstance(given, str) else given
    return KeyProviderSpec(name=name, options=dict(options))


def key_provider_of(spec: KeyProviderSpec | None) -> KeyProvider | None:
    """The provider that a spec names.

    Raises:
        UnknownPluginError, MissingExtraError, BrokenPluginError, OptionError.
    """
    return None if spec is None else make_key_provider(spec.name, spec.options)


class TaskOpening:
    """Gives each run of a task what opens its payloads, and settles each topic when it ends."""

    def __init__(self, tier: Tier, task: ScanTask, options: ReadOptions) -> None:
        self._tier = tier
        self._task = task
        self._options = options
        self._decryptor = Decryptor(key_provider_of(options.key_provider))
        self._runs_of = functools.partial(runs_around, tier)
        self._run: Run | None = None
        self._opener = PayloadOpener()

    def of(self, run: Run) -> PayloadOpener:
        """The opener for this run; the runs of a topic share one.

        Raises:
            IncompleteMessageError: a message of the topic before is not complete.
        """
        if self._run is None or self._run.topic != run.topic:
            self.finish()
            self._opener = self._new_opener(run)
            self._run = run
        return self._opener

    def finish(self, *, is_over: bool = False) -> None:
        """At a topic's end in the task: what is not complete, and what was not read as a consumer would have seen it.

        With `is_over` what follows of the topic is not asked for, so that messages need not be complete.

        Raises:
            IncompleteMessageError: a message is not complete, in the mode FAILFAST.
        """
        if self._run is None:
            return
        label = self._run.label
        opener = self._opener
        if opener.joiner is not None and not is_over:
            settle_pending(
                opener.joiner,
                self._neighbours(self._run),
                self._runs_of,
                self._read_chunks(opener),
                self._options.chunk_look_back_bytes,
                label,
            )
            opener.report_incomplete()
            if opener.joiner.cut_at_beginning:
                _log.warning(
                    "%s: %d chunked messages begin before what there is; they are not read",
                    label,
                    opener.joiner.cut_at_beginning,
                )
        _tell(label, opener.counts)
        self._run = None

    def _new_opener(self, run: Run) -> PayloadOpener:
        options = self._options
        opener = PayloadOpener(
            decryptor=self._decryptor, crypto_failure_action=options.without_key, mode=options.mode
        )
        if options.joins_chunks:
            look_back = LookBack(
                self._neighbours(run),
                self._runs_of,
                self._read_chunks(opener),
                options.chunk_look_back_bytes,
                options.max_pending_chunk_bytes,
            )
            opener.joiner = ChunkJoiner(
                max_message_bytes=options.max_message_bytes,
                max_pending_bytes=options.max_pending_chunk_bytes,
                look_back=look_back,
            )
        return opener

    def _neighbours(self, run: Run) -> Neighbours:
        return self._task.neighbours.get(run.topic, Neighbours())

    def _read_chunks(self, opener: PayloadOpener) -> ReadChunks:
        return functools.partial(read_chunks, self._tier, options=self._options, opener=opener)


def _tell(label: str, counts: EntryCounts) -> None:
    for name, what in _TOLD:
        number = getattr(counts, name)
        if number:
            _log.warning("%s: %d %s", label, number, what)
