"""The offload filter `{{ cookiecutter.name }}` for pulsar-offload: leaves out what one producer sent.

What each method must do is in the docstrings of `offload_hooks.filters`; they are the law. As it was made,
this filter drops entries of one producer, a monitor's heartbeats for instance. Put your own rule in the
place of `producer_of`: the comments name the points to consider, and the conformance suite checks the
result.
"""

from array import array

from offload_hooks.errors import TruncatedError, placed


class {{ cookiecutter.plugin }}:
    """Drops entries of the producer `producer`."""

    # The first position (ledger id, entry id) that is not decided on yet, and for what it waits, in words
    # for users; entries from there on stay hot. This filter decides on each entry by itself: nothing waits.
    stop = None
    waits_for = ""

    # Spell the options out; they may all be text. The causes are shown to users, and kept with the objects.
    def __init__(self, producer):
        self._producer = producer.encode()
        self.causes = (f"producer {producer}",)

    # Asked for each ledger that is offloaded. `topic.name` is the topic, `topic.settle()` its transactions.
    # The answer is used by one thread; give another object each time if it keeps anything. None drops
    # nothing.
    def open(self, topic):
        return self

    # An int32 for each entry: 0 keeps it, n drops it for causes[n - 1]. What is dropped cannot come back.
    # So decide the same of the same entry every time, in any process, and keep what you are not sure of. An
    # error fails the offload of the ledger, which stays hot.
    def look(self, ledger_id, entries):
        decisions = array("i")
        for entry_id, entry in enumerate(entries, entries.first_entry_id):
            with placed(ledger_id=ledger_id, entry_id=entry_id):
                decisions.append(producer_of(bytes(entry)) == self._producer)
        return memoryview(decisions)


# An entry is a batch of messages of one producer. It has, in this order: perhaps 0e02, a length, and what
# the broker noted; perhaps 0e01 and a checksum; a length, and the metadata; the payload. The metadata is
# protobuf, and begins with field 1, the producer's name. Its checksum is not verified: a damaged name is
# another one, so the entry is kept.
def producer_of(entry):
    """The name of the producer as bytes; None where the metadata does not begin with it."""
    place = 0
    if entry[:2] == b"\x0e\x02":
        place = 2 + len(sized(entry, 2)) + 4
    if entry[place : place + 2] == b"\x0e\x01":
        place += 6
    metadata = sized(entry, place)
    if metadata[:1] != b"\x0a":
        return None
    length, digits, place = 0, 0, 1  # a varint: seven bits in each byte, the last one below 0x80
    while True:
        byte = metadata[place] if place < len(metadata) else refuse()
        length |= (byte & 0x7F) << digits
        digits, place = digits + 7, place + 1
        if byte < 0x80:
            return metadata[place : place + length] if place + length <= len(metadata) else refuse()


def sized(entry, place):
    """The bytes after a length of four bytes."""
    length = int.from_bytes(entry[place : place + 4], "big")
    return entry[place + 4 : place + 4 + length] if place + 4 + length <= len(entry) else refuse()


def refuse():
    raise TruncatedError("an entry ends before it is whole")
