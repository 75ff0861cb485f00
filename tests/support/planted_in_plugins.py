"""Filters, layers and providers that lie, each in one way, and the cases of their suites that must find it out."""

from __future__ import annotations

import os
import time
from array import array

import pytest

from offload_hooks import hookimpl
from offload_hooks.errors import DecryptionError, FormatError, OptionError, StoreError, placed
from offload_hooks.schemas import SchemaHistory, SchemaVersion
from offload_hooks.testing import (
    FilterConformance,
    KeyProviderConformance,
    LayerConformance,
    SchemaProviderConformance,
)

SECRET = "hunter2"

FAULTS: dict[type, tuple[str, ...]] = {}


def caught_by(*cases):
    """The plugin below is found out by these cases."""

    def planted(plugin):
        FAULTS[plugin] = cases
        return plugin

    return planted


# --- filters: sound ones drop entries that begin with `drop`, and refuse those that begin with `?`


class Sound:
    """Drops entries that begin with the option `text`."""

    stop = None
    waits_for = ""

    def __init__(self, text):
        self.text = text.encode()
        self.causes = [f"begins with {text}"]

    def open(self, _):
        return self

    def look(self, ledger_id, entries):
        found = array("i")
        for entry_id, payload in enumerate(entries, entries.first_entry_id):
            with placed(ledger_id=ledger_id, entry_id=entry_id):
                found.append(self.decide(bytes(payload)))
        return memoryview(found)

    def decide(self, payload):
        if payload.startswith(b"?"):
            raise FormatError("no entry")
        return payload.startswith(self.text)


STATED = "test_each_entry_is_decided_as_its_author_states"


@caught_by(STATED, "test_another_process_decides_the_same")
class AnswersBytes(Sound):
    def look(self, ledger_id, entries):
        return bytes(super().look(ledger_id, entries))


@caught_by(STATED)
class ForgetsTheLast(Sound):
    def look(self, ledger_id, entries):
        return super().look(ledger_id, entries)[:-1]


@caught_by("test_how_entries_are_read_changes_no_decision[1]")
class DecidesByTheBatch(Sound):
    def look(self, ledger_id, entries):
        found = super().look(ledger_id, entries)
        return memoryview(array("i", [1])) if len(found) == 1 else found


@caught_by("test_an_offload_that_is_made_again_decides_the_same", "test_many_threads_at_once_decide_the_same")
class DropsWhatItHasSeen(Sound):
    def __init__(self, text):
        super().__init__(text)
        self.seen = set()

    def decide(self, payload):
        known = payload in self.seen
        self.seen.add(payload)
        return known or super().decide(payload)


@caught_by("test_the_number_of_a_call_changes_no_decision")
class KeepsEverySeventh(Sound):
    drops = 0

    def open(self, topic):
        self.drops = 0
        return super().open(topic)

    def decide(self, payload):
        is_dropped = super().decide(payload)
        self.drops += is_dropped
        return is_dropped and self.drops % 7 != 0


@caught_by("test_a_filter_that_is_made_anew_decides_the_same")
class CountsItsInstances(Sound):
    made = 0

    def __init__(self, text):
        super().__init__(text)
        type(self).made += 1
        self.wrong = self.made % 3 == 0

    def decide(self, payload):
        return self.wrong or super().decide(payload)


@caught_by("test_another_process_decides_the_same")
class DecidesByTheHash(Sound):
    def __init__(self, text):
        super().__init__(text)
        self.causes = [f"hash {hash(text)}"]


@caught_by("test_many_threads_at_once_decide_the_same")
class SharesItsAnswer(Sound):
    def look(self, ledger_id, entries):
        self.found = super().look(ledger_id, entries)
        time.sleep(0.001)
        return self.found


@caught_by("test_a_decision_and_its_causes_stay_as_they_are")
class UsesItsAnswerAgain(Sound):
    def __init__(self, text):
        super().__init__(text)
        self.kept = array("i", bytes(4 * 1000))

    def look(self, ledger_id, entries):
        found = super().look(ledger_id, entries)
        view = memoryview(self.kept)[: len(found)]
        view[:] = found
        return view


@caught_by("test_a_decision_and_its_causes_stay_as_they_are")
class ReplacesCauses(Sound):
    def look(self, ledger_id, entries):
        before = self.causes[0]
        self.causes = [before, f"{before} again"] if len(self.causes) == 1 else [f"{before}!", before]
        return super().look(ledger_id, entries)


@caught_by("test_entries_are_not_changed")
class ChangesEntries(Sound):
    def look(self, ledger_id, entries):
        if not entries.data.readonly:
            entries.data[0] = 0
        return super().look(ledger_id, entries)


@caught_by("test_any_bytes_are_decided_on_or_refused_with_their_place")
class FailsAtAnEmptyEntry(Sound):
    def decide(self, payload):
        return payload[0] == self.text[0]


@caught_by("test_a_malformed_entry_is_refused_with_its_place")
class DropsWhatIsMalformed(Sound):
    def decide(self, payload):
        return payload[:1] == b"?" or super().decide(payload)


@caught_by("test_a_malformed_entry_is_refused_with_its_place")
class NamesNoEntry(Sound):
    def look(self, ledger_id, entries):
        try:
            return super().look(ledger_id, entries)
        except FormatError as error:
            raise FormatError(error.what) from None


@caught_by("test_an_opened_filter_has_a_bound_and_causes")
class WaitsForNothing(Sound):
    stop = (8, 0)


@caught_by("test_the_entries_are_before_stop_and_stop_stays")
class MovesItsStop(Sound):
    stop, waits_for = (8, 0), "more"

    def look(self, ledger_id, entries):
        self.stop = (9, 0)
        return super().look(ledger_id, entries)


@caught_by("test_an_error_of_the_topic_is_passed_on")
class HidesTheTopicsErrors(Sound):
    def open(self, topic):
        try:
            topic.settle()
        except StoreError as error:
            raise OptionError(error.what) from None
        return self


class FilterSuite(FilterConformance):
    @pytest.fixture
    def make_filter(self):
        return self.plugin

    @pytest.fixture
    def options(self):
        return {"text": "drop"}

    @pytest.fixture
    def entries(self):
        (cause, *_) = self.plugin("drop").causes
        return [(b"keep", None), (b"drop this", cause), (b"keep that", None), (b"drop", cause)]

    @pytest.fixture
    def malformed(self):
        return [b"?"]


# --- layers


class OverRest:
    def __init__(self, rest):
        self.rest = rest

    @hookimpl
    def stat(self, key):
        return self.rest.stat(key=key)


@caught_by("test_a_layer_takes_part_in_a_hook")
class DoesNothing:
    def __init__(self, rest):
        pass


@caught_by("test_a_layer_is_equal_to_itself_only")
class EqualsOthers(OverRest):
    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 1


@caught_by("test_a_layer_takes_part_in_a_hook", "test_an_error_of_the_driver_is_passed_on")
class AsksInItsFactory(OverRest):
    def __init__(self, rest):
        super().__init__(rest)
        self.described = rest.describe()


@caught_by("test_it_is_gone_for_other_instances")
class RemembersStats(OverRest):
    def __init__(self, rest):
        super().__init__(rest)
        self.stats = {}

    @hookimpl
    def stat(self, key):
        if key not in self.stats:
            self.stats[key] = self.rest.stat(key=key)
        return self.stats[key]


@caught_by("test_an_error_of_the_driver_is_passed_on")
class TellsAnotherError(OverRest):
    @hookimpl
    def stat(self, key):
        try:
            return self.rest.stat(key=key)
        except StoreError as error:
            raise StoreError(error.what, key=key) from None


class LayerSuite(LayerConformance):
    max_examples = 0

    @pytest.fixture
    def make_layer(self):
        return self.plugin


# --- schema providers


TOPIC = "persistent://acme/cold/orders"
HISTORY = SchemaHistory(
    versions=(SchemaVersion(version=0, type="STRING"), SchemaVersion(version=2, type="STRING"))
)


class OneTopic:
    """Knows one topic, or is `damaged`, or is `gone`."""

    def __init__(self, state="", password=""):
        self.state, self.password = state, password
        self.closed = False

    def history(self, topic):
        if self.state == "damaged":
            raise FormatError("no history", key="history")
        if self.state == "gone":
            raise StoreError("it does not answer")
        return HISTORY if topic == TOPIC else None

    def close(self):
        self.closed = True


@caught_by("test_a_topic_that_is_known_has_its_whole_history", "test_a_history_is_complete_and_in_order")
class NewestFirst(OneTopic):
    def history(self, topic):
        found = super().history(topic)
        return found and SchemaHistory(versions=found.versions[::-1])


@caught_by("test_a_topic_that_is_not_known_has_no_history[of another tenant]")
class RaisesForUnknownTopics(OneTopic):
    def history(self, topic):
        found = super().history(topic)
        if found is None:
            raise StoreError("no such topic")
        return found


@caught_by("test_a_topic_that_is_not_known_has_no_history[with NUL]")
class LooksForFiles(OneTopic):
    def history(self, topic):
        os.stat(topic.removeprefix("persistent://")) if "\0" in topic else None
        return super().history(topic)


@caught_by("test_it_can_be_used_after_it_was_closed")
class EndsWithClose(OneTopic):
    def history(self, topic):
        if self.closed:
            raise StoreError("it was closed")
        return super().history(topic)


@caught_by("test_its_repr_shows_no_secret")
class ShowsItsPassword(OneTopic):
    def __repr__(self):
        return f"ShowsItsPassword({self.password!r})"


@caught_by("test_many_threads_may_ask_at_once")
class IsForOneThread(OneTopic):
    def history(self, topic):
        self.topic = topic
        mine = self.asking = object()
        time.sleep(0.001)
        if self.asking is not mine:
            raise StoreError("another thread asks")
        return super().history(topic)


@caught_by("test_a_source_that_does_not_answer_is_a_store_error")
class TakesSilenceForNone(OneTopic):
    def history(self, topic):
        return None if self.state == "gone" else super().history(topic)


@caught_by("test_a_damaged_history_is_a_format_error")
class NamesNoPlaceOfDamage(OneTopic):
    def history(self, topic):
        if self.state == "damaged":
            raise FormatError("no history")
        return super().history(topic)


class SchemaSuite(SchemaProviderConformance):
    secrets = (SECRET,)

    @pytest.fixture
    def make_provider(self):
        return self.plugin

    @pytest.fixture
    def options(self):
        return {"password": SECRET}

    @pytest.fixture
    def histories(self):
        return {TOPIC: HISTORY}

    @pytest.fixture
    def malformed(self):
        return {"state": "damaged"}, TOPIC

    @pytest.fixture
    def unreachable(self):
        return {"state": "gone"}


# --- key providers: sound ones find each encrypted data key in a table


DATA_KEYS = {"orders": (b"encrypted for orders", b"o" * 32), "other": (b"encrypted for other", b"p" * 32)}


class Table:
    def __init__(self, password="", state=""):
        self.password, self.state = password, state

    def decrypt_data_key(self, name, encrypted, _):
        if self.state == "gone":
            raise StoreError("it does not answer")
        if name not in DATA_KEYS:
            return None
        if DATA_KEYS[name][0] != encrypted:
            raise DecryptionError("it does not decrypt this", found=f"key {name!r}")
        return DATA_KEYS[name][1]


@caught_by("test_a_data_key_is_decrypted_by_the_key_of_its_name", "test_any_thread_may_ask")
class DecryptsOnce(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        if name in vars(self):
            return None
        setattr(self, name, True)
        return super().decrypt_data_key(name, encrypted, metadata)


@caught_by("test_a_name_without_a_key_gives_none[unknown]")
class RaisesForUnknownNames(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        if name not in DATA_KEYS:
            raise OptionError("no key of this name")
        return super().decrypt_data_key(name, encrypted, metadata)


@caught_by("test_a_name_without_a_key_gives_none[empty]")
class TakesAnyKey(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        return super().decrypt_data_key(name or "orders", encrypted, metadata)


@caught_by("test_what_a_key_does_not_decrypt_is_an_error")
class TakesWrongDataForNoKey(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        try:
            return super().decrypt_data_key(name, encrypted, metadata)
        except DecryptionError:
            return None


@caught_by("test_what_a_key_does_not_decrypt_is_an_error")
class ShowsTheDataKey(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        if name in DATA_KEYS and DATA_KEYS[name][0] != encrypted:
            raise DecryptionError("it does not decrypt this", found=repr(DATA_KEYS[name][1]))
        return super().decrypt_data_key(name, encrypted, metadata)


@caught_by("test_its_repr_shows_neither_secrets_nor_data_keys")
class ShowsItsSecrets(Table):
    def __repr__(self):
        return f"Keys(password={self.password!r})"


@caught_by("test_keys_that_cannot_be_read_now_are_an_error")
class TakesSilenceForNoKey(Table):
    def decrypt_data_key(self, name, encrypted, metadata):
        return None if self.state == "gone" else super().decrypt_data_key(name, encrypted, metadata)


class KeySuite(KeyProviderConformance):
    secrets = (SECRET,)

    @pytest.fixture
    def make_provider(self):
        return self.plugin

    @pytest.fixture
    def options(self):
        return {"password": SECRET}

    @pytest.fixture
    def data_keys(self):
        return DATA_KEYS

    @pytest.fixture
    def unreachable(self):
        return {"state": "gone"}


_SUITES = {Sound: FilterSuite, OneTopic: SchemaSuite, Table: KeySuite}


def _suite(plugin):
    return next((suite for kind, suite in _SUITES.items() if issubclass(plugin, kind)), LayerSuite)


for _plugin in FAULTS:
    _name = f"Test{_plugin.__name__}"
    globals()[_name] = type(_name, (_suite(_plugin),), {"plugin": _plugin})


class TestSound(FilterSuite):
    plugin = Sound


class TestOverRest(LayerSuite):
    plugin = OverRest


class TestOneTopic(SchemaSuite):
    plugin = OneTopic


class TestTable(KeySuite):
    plugin = Table
