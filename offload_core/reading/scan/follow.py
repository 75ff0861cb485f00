"""A tier that is watched as ledgers and segments arrive: its topics, looked at again after a while.

Only what is new is read. The names of a bucket's objects begin with random numbers, so that a listing cannot go on
where the last one ended: it is made again, but not more often than asked for; with records nothing is listed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from offload_core.metadata.catalogue import Catalogue, Topic, TopicName
from offload_core.reading.scan.frontier import Frontier
from offload_core.reading.scan.select import Selection, select_topics
from offload_hooks.errors import DataLossError

Look = Callable[[Catalogue | None], Catalogue]
"""Makes a catalogue, given the one before."""

_log = logging.getLogger(__name__)


class TopicFollower:
    """The topics of a selection, over and over again.

    Args:
        look: makes a catalogue.
        selection: which of its topics; names may have nothing yet.
        interval_s: look at most so often, in seconds.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        look: Look,
        selection: Selection,
        *,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._selection = selection
        self._interval_s = interval_s
        self._clock = clock
        self._looked_at = 0.0
        self._catalogue: Catalogue | None = None
        self._seen: dict[TopicName, set[int]] = {}
        self._is_frozen = False

    def topics(self, *, fresh: bool = False) -> list[Topic]:
        """The topics as they are; not older than the interval, or not at all with `fresh`, unless it was frozen."""
        catalogue = self._catalogue
        if catalogue is None or (not self._is_frozen and (fresh or self._is_old())):
            catalogue = self._catalogue = self._look(catalogue)
            self._looked_at = self._clock()
        return select_topics(catalogue, self._selection)

    def freeze(self) -> None:
        """Look once more, and then no more."""
        self.topics(fresh=True)
        self._is_frozen = True

    def check_late(self, topics: list[Topic], reached: Frontier, *, fail_on_data_loss: bool) -> None:
        """Notice ledgers that appeared behind the position that a stream had reached: they would never be read.

        Raises:
            DataLossError: there is one (`fail_on_data_loss`).
        """
        for topic in topics:
            if topic.name is None:
                continue
            ledger_ids = {ledger.ledger_id for ledger in topic.ledgers if ledger.extents}
            seen = self._seen.setdefault(topic.name, ledger_ids)
            position = reached.get(topic.name)
            late = sorted(
                each for each in ledger_ids - seen if position is not None and each < position.ledger_id
            )
            seen |= ledger_ids
            if late:
                error = DataLossError(
                    f"a ledger of {topic.label} came to the tier after later ones had been read",
                    ledger_id=late[0],
                    found=f"ledgers {', '.join(map(str, late))}, when {position} had been reached",
                    hint="Read them by a batch query. With records, streams wait for ledgers in their order.",
                )
                if fail_on_data_loss:
                    raise error
                _log.warning("%s", error)

    def _is_old(self) -> bool:
        return self._clock() - self._looked_at >= self._interval_s
