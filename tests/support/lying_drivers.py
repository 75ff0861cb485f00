"""The list of planted faults: drivers that lie, each in one way, and the cases that find it out."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone

from offload_hooks import ListedObject, ObjectStat, WholeObject, hookimpl
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, OffloadError, StoreError
from offload_hooks.testing import MemoryDriver, MemoryTier

SECRET = "hunter2"
SEQUENCES = "test_any_sequence_of_calls_matches_a_dict"

FAULTS: dict[type, tuple[str, ...]] = {}
"""The drivers, and the cases that must fail."""


def caught_by(*cases):
    """The driver below is found out by these cases."""

    def planted(driver):
        FAULTS[driver] = cases
        return driver

    return planted


# --- Drivers that lie about an object: its metadata, its bytes, how it is written.


# --- metadata -------------------------------------------------------------------------------------


@caught_by("test_user_metadata_and_content_type_are_kept[data]", SEQUENCES)
class DropsMetadata(MemoryDriver):
    @hookimpl
    def begin_data(self, key, content_type):
        return super().begin_data(key, content_type, {})


@caught_by("test_a_replacement_replaces_them[data]", "test_a_replacement_replaces_them[index]", SEQUENCES)
class KeepsTheMetadataOfTheOldObject(MemoryDriver):
    def store(self, key, blocks, content_type, user_metadata, create_only):
        old = self.tier.objects.get(key)
        user_metadata = {**(old.stat.user_metadata if old else {}), **user_metadata}
        return super().store(key, blocks, content_type, user_metadata, create_only)


@caught_by("test_deleted_and_written_anew_an_object_has_the_new_ones[data]")
class LeavesTheSidecar(MemoryDriver):
    sidecars: dict = {}  # noqa: RUF012

    def store(self, key, blocks, content_type, user_metadata, create_only):
        user_metadata = self.sidecars.setdefault((id(self.tier), key), user_metadata)
        return super().store(key, blocks, content_type, user_metadata, create_only)


@caught_by("test_names_are_lower_case[index]", SEQUENCES)
class KeepsUpperCase(MemoryDriver):
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        super().write_index(key, b"", content_type, {}, create_only)  # all checks
        return self.store(key, [bytes(data)], content_type, user_metadata, False)


@caught_by("test_kept_exactly_or_refused_is[a value with spaces around-data]")
class StripsValues(MemoryDriver):
    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        stripped = {name: value.strip() for name, value in user_metadata.items()}
        return super().begin_data(key, content_type, stripped)


@caught_by("test_the_time_is_in_utc_and_now[data]", "test_sizes_and_times_are_those_of_the_objects")
class TellsNaiveTimes(MemoryDriver):
    def store(self, key, blocks, content_type, user_metadata, create_only):
        stat = super().store(key, blocks, content_type, user_metadata, create_only)
        stat = replace(stat, modified_at=stat.modified_at.replace(tzinfo=None))
        self.tier.objects[key] = replace(self.tier.objects[key], stat=stat)
        return stat


# --- bytes ----------------------------------------------------------------------------------------


@caught_by("test_a_range_is_exact[in the middle]", SEQUENCES)
class ReadsOneByteLater(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        super().read_range(key, offset, length)
        moved = min(offset + 1, self.stat(key).size_bytes - length)
        return super().read_range(key, moved, length)


@caught_by("test_ranges_cross_the_borders_of_blocks", SEQUENCES)
class StopsAtTheBlocksEnd(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        data = super().read_range(key, offset, length)
        border = 0
        for block in self.tier.objects[key].blocks:
            border += len(block)
            if offset < border:
                return data[: border - offset]
        return data


@caught_by("test_no_object_has_a_range[one byte past the end]", SEQUENCES)
class IsSilentAboutTheEnd(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        size_bytes = self.stat(key).size_bytes
        if 0 <= offset < size_bytes and length > 0:
            length = min(length, size_bytes - offset)
        return super().read_range(key, offset, length)


@caught_by("test_what_was_read_stays_as_it_is")
class UsesItsBufferAgain(MemoryDriver):
    buffer = bytearray(1 << 20)

    @hookimpl
    def read_range(self, key, offset, length):
        self.buffer[:length] = super().read_range(key, offset, length)
        return memoryview(self.buffer)[:length]


@caught_by("test_what_another_program_replaced_is_read_anew", SEQUENCES)
class RemembersObjects(MemoryDriver):
    def __init__(self, tier):
        super().__init__(tier)
        self._read = {}

    def store(self, key, blocks, content_type, user_metadata, create_only):
        self._read.pop(key, None)
        return super().store(key, blocks, content_type, user_metadata, create_only)

    @hookimpl
    def read_range(self, key, offset, length):
        if key in self.tier.objects:
            current = self._read.setdefault(key, self.tier.objects[key])
            tier = MemoryTier({key: current})
            return MemoryDriver(tier).read_range(key, offset, length)
        return super().read_range(key, offset, length)


@caught_by("test_many_readers_do_not_disturb_each_other")
class HasOnePosition(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        super().read_range(key, offset, length)
        self._offset = offset  # a file that all share
        time.sleep(0.001)
        return self.tier.objects[key].data[self._offset : self._offset + length]


@caught_by("test_many_ranges_come_in_their_order", SEQUENCES)
class AnswersInTheOrderOfOffsets(MemoryDriver):
    @hookimpl
    def read_ranges(self, ranges):
        return super().read_ranges(sorted(ranges, key=lambda each: each.offset))


@caught_by("test_many_ranges_are_all_or_nothing[0]", "test_many_ranges_are_all_or_nothing[9]")
class AnswersErrorsAmongTheRanges(MemoryDriver):
    @hookimpl
    def read_ranges(self, ranges):
        return [self._outcome(each) for each in ranges]

    def _outcome(self, each):
        try:
            return self.read_range(each.key, each.offset, each.length)
        except OffloadError as error:
            return error


@caught_by("test_an_object_is_read_whole_with_its_stat[10000]")
class ReadsWholeObjectsInPart(MemoryDriver):
    @hookimpl
    def read_object(self, key, most_bytes):
        whole = super().read_object(key, most_bytes)
        return replace(whole, data=whole.data[:4096])


@caught_by("test_an_object_is_read_whole_with_its_stat[1]")
class ReadsWholeObjectsWithoutTheirMetadata(MemoryDriver):
    @hookimpl
    def read_object(self, key, most_bytes):
        whole = super().read_object(key, most_bytes)
        return replace(whole, stat=replace(whole.stat, user_metadata={}))


@caught_by("test_what_another_program_replaced_is_read_whole_anew")
class RemembersWholeObjects(MemoryDriver):
    @hookimpl
    def read_object(self, key, most_bytes):
        known = self.__dict__.setdefault("known", {})
        return known.setdefault(key, super().read_object(key, most_bytes))


@caught_by("test_what_is_not_there_cannot_be_read_whole")
class AnswersEmptyObjectsForNone(MemoryDriver):
    @hookimpl
    def read_object(self, key, most_bytes):
        try:
            return super().read_object(key, most_bytes)
        except ObjectNotFoundError:
            stat = ObjectStat(key=key, size_bytes=0, modified_at=datetime.now(timezone.utc))
            return WholeObject(stat=stat, data=b"")


# --- uploads --------------------------------------------------------------------------------------


@caught_by("test_nothing_is_visible_before_the_commit", SEQUENCES)
class ShowsTheObjectAsItIsWritten(MemoryDriver):
    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        receipt = super().write_block(upload, part_number, offset, data)
        self.store(upload.key, [bytes(data)], "text/plain", {}, False)
        return receipt


@caught_by("test_an_object_stays_as_it_was_until_the_commit_that_replaces_it", SEQUENCES)
class ClearsTheWayFirst(MemoryDriver):
    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        self.tier.objects.pop(key, None)
        return super().begin_data(key, content_type, user_metadata)


@caught_by("test_blocks_may_come_in_any_order", SEQUENCES)
class PutsBlocksInTheOrderOfTheirArrival(MemoryDriver):
    def checked_blocks(self, upload, opened, receipts):
        blocks = super().checked_blocks(upload, opened, receipts)
        return [block for _, block in opened.blocks.values()][: len(blocks)]


@caught_by("test_of_a_block_written_twice_the_last_counts", SEQUENCES)
class LosesTheSecondOfTwoWrites(MemoryDriver):
    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        opened = self.tier.uploads.get(upload)
        if opened and part_number in opened.blocks:
            return opened.blocks[part_number][0]
        return super().write_block(upload, part_number, offset, data)


@caught_by("test_the_callers_buffer_is_not_kept")
class KeepsTheCallersBuffer(MemoryDriver):
    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        receipt = super().write_block(upload, part_number, offset, data)
        self.tier.uploads[upload].blocks[part_number] = (receipt, memoryview(data))
        return receipt


@caught_by("test_the_parts_in_the_store_are_exactly_the_blocks")
class JoinsBlocks(MemoryDriver):
    def checked_blocks(self, upload, opened, receipts):
        return [b"".join(super().checked_blocks(upload, opened, receipts))]


@caught_by(
    "test_a_commit_is_refused_with_receipts[with a hole]",
    "test_blocks_that_are_large_enough_are_refused_with_a_hole_or_overlap",
)
class LooksAtNoOffset(MemoryDriver):
    def checked_blocks(self, upload, opened, receipts):
        end, moved = 0, []
        for receipt in receipts:
            stored, block = opened.blocks[receipt.part_number]
            moved.append(replace(stored, offset=end))
            opened.blocks[receipt.part_number] = (moved[-1], block)
            end += stored.length
        return super().checked_blocks(upload, opened, moved)


@caught_by(
    "test_receipts_that_are_not_in_the_order_of_their_parts_are_refused",
    "test_receipts_of_parts_whose_numbers_have_a_gap_are_refused",
)
class LooksAtNoOrderOfParts(MemoryDriver):
    def checked_blocks(self, upload, opened, receipts):
        renumbered = [replace(receipt, part_number=i) for i, receipt in enumerate(receipts, 1)]
        blocks = [opened.blocks[receipt.part_number][1] for receipt in receipts]
        stored = dict(enumerate(zip(renumbered, blocks, strict=True), 1))
        return super().checked_blocks(upload, replace(opened, blocks=stored), renumbered)


@caught_by("test_an_upload_cannot_be_committed_twice", SEQUENCES)
class CommitsAgain(MemoryDriver):
    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        opened = self.tier.uploads.get(upload)
        stat = super().commit_data(upload, receipts, create_only)
        self.tier.uploads[upload] = opened
        return stat


@caught_by("test_an_aborted_upload_cannot_be_committed", "test_an_upload_that_ended_is_not_listed", SEQUENCES)
class AbortsNothing(MemoryDriver):
    @hookimpl
    def abort_data(self, upload):
        return upload in self.tier.uploads


@caught_by("test_of_two_uploads_of_a_key_the_last_commit_wins", SEQUENCES)
class EndsOtherUploadsWithoutSayingSo(MemoryDriver):
    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        stat = super().commit_data(upload, receipts, create_only)
        for other in [other for other in self.tier.uploads if other.key == upload.key]:
            del self.tier.uploads[other]
        return stat


@caught_by("test_an_upload_is_listed_with_its_time", SEQUENCES)
class DeclaresStaleUploadsAndHasNone(MemoryDriver):
    @hookimpl
    def list_uploads(self):
        return iter([])


@caught_by("test_another_instance_can_go_on_with_an_upload", "test_another_instance_can_abort_an_upload")
class RemembersItsOwnUploadsOnly(MemoryDriver):
    def __init__(self, tier):
        super().__init__(MemoryTier(tier.objects, {}, tier.lock))


# --- Drivers that lie about a tier: what is in it, who made it, what can be asked of it.


# --- create-only ----------------------------------------------------------------------------------


@caught_by(
    "test_of_racing_create_only_writers_exactly_one_wins[data]",
    "test_of_racing_create_only_writers_exactly_one_wins[index]",
    "test_of_racing_create_only_writers_exactly_one_wins[data-and-index]",
)
class LooksThenWrites(MemoryDriver):
    def store(self, key, blocks, content_type, user_metadata, create_only):
        if create_only and key in self.tier.objects:
            raise ObjectExistsError("there is an object of this key already", key=key)
        time.sleep(0.01)
        return super().store(key, blocks, content_type, user_metadata, False)

    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        opened = self.tier.uploads[upload]
        blocks = self.checked_blocks(upload, opened, receipts)
        stat = self.store(upload.key, blocks, opened.content_type, opened.user_metadata, create_only)
        del self.tier.uploads[upload]
        return stat


@caught_by("test_create_only_leaves_an_object_as_it_is[index]", SEQUENCES)
class ReplacesAnIndexInSpiteOfCreateOnly(MemoryDriver):
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata):
        return super().write_index(key, data, content_type, user_metadata, False)


# --- listing and deleting -------------------------------------------------------------------------


@caught_by("test_a_listing_shows_what_was_written_since_the_last_one", SEQUENCES)
class RemembersListings(MemoryDriver):
    def __init__(self, tier):
        super().__init__(tier)
        self._listings = {}

    @hookimpl
    def list_objects(self, prefix, start_after):
        if (prefix, start_after) not in self._listings:
            self._listings[prefix, start_after] = list(super().list_objects(prefix, start_after))
        return iter(self._listings[prefix, start_after])


@caught_by("test_keys_come_in_the_order_of_their_bytes")
class ListsLikeADictionary(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        return iter(sorted(super().list_objects(prefix, start_after), key=lambda each: each.key.casefold()))


@caught_by("test_keys_come_in_the_order_of_their_bytes", SEQUENCES)
class ListsFolderByFolder(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        return iter(sorted(super().list_objects(prefix, start_after), key=lambda each: each.key.split("/")))


@caught_by("test_unusual_keys_come_in_the_order_of_their_utf_8_bytes")
class ListsInTheOrderOfUtf16(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        found = super().list_objects(prefix, start_after)
        return iter(sorted(found, key=lambda each: each.key.encode("utf-16-be")))


@caught_by("test_only_keys_after_a_place_are_listed[a/b]", "test_prefix_and_place_may_be_combined", SEQUENCES)
class ListsThePlaceItself(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        found = super().list_objects(prefix, "")
        return (each for each in found if each.key.encode() >= start_after.encode())


@caught_by("test_only_keys_that_begin_with_the_prefix_are_listed[a]")
class TakesThePrefixForAFolder(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        folder = prefix.rstrip("/") + "/" if prefix else ""
        return super().list_objects(folder, start_after)


@caught_by("test_a_listing_longer_than_a_page_is_complete")
class ListsOnePage(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        return (each for _, each in zip(range(40), super().list_objects(prefix, start_after)))  # noqa: B905


@caught_by("test_uploads_and_other_things_of_the_drivers_own_are_not_listed", SEQUENCES)
class ListsUploadsAsObjects(MemoryDriver):
    @hookimpl
    def list_objects(self, prefix, start_after):
        found = list(super().list_objects(prefix, start_after))
        for upload, opened in self.tier.uploads.items():
            if upload.key.startswith(prefix) and upload.key > start_after:
                found.append(ListedObject(key=upload.key, size_bytes=0, modified_at=opened.started_at))
        return iter(sorted(found, key=lambda each: each.key.encode()))


@caught_by("test_many_are_deleted_at_once", SEQUENCES)
class DeletesTheFirstAndSaysAll(MemoryDriver):
    @hookimpl
    def delete(self, keys):
        super().delete(keys[:1])
        return len(keys)


# --- errors, keys, processes ----------------------------------------------------------------------


@caught_by("test_what_is_not_there_cannot_be_read", SEQUENCES)
class HidesErrorsAsNone(MemoryDriver):
    @hookimpl
    def stat(self, key):
        return super().stat(key) if key in self.tier.objects else None


@caught_by("test_what_is_not_there_cannot_be_read")
class RaisesErrorsOfItsOwn(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        try:
            return super().read_range(key, offset, length)
        except FileNotFoundError:
            raise FileNotFoundError(key) from None


class _UnpicklableError(StoreError, FileNotFoundError):
    def __init__(self, key, status):
        super().__init__(f"there is no such object: {status}", key=key)


@caught_by("test_what_is_not_there_cannot_be_read")
class RaisesErrorsThatCannotBePickled(MemoryDriver):
    @hookimpl
    def stat(self, key):
        if key not in self.tier.objects:
            raise _UnpicklableError(key, 404)
        return super().stat(key)


@caught_by("test_what_is_not_there_cannot_be_read")
class TellsItsPasswordInAnError(MemoryDriver):
    @hookimpl
    def read_range(self, key, offset, length):
        try:
            return super().read_range(key, offset, length)
        except StoreError as error:
            error.hint = f"The request was https://store/{key}?signature={SECRET}"
            raise


class _StatusError(ObjectNotFoundError):
    status = 0

    def __str__(self):
        return f"{super().__str__()} (status {self.status})"


@caught_by("test_what_is_not_there_cannot_be_read")
class LosesPartOfAnErrorBetweenProcesses(MemoryDriver):
    @hookimpl
    def stat(self, key):
        if key not in self.tier.objects:
            gone = _StatusError("there is no such object", key=key)
            gone.status = 404
            raise gone
        return super().stat(key)


@caught_by("test_describe_shows_no_credentials")
class TellsItsPasswordInItsLocation(MemoryDriver):
    @hookimpl
    def describe(self):
        return replace(super().describe(), location=f"memory://me:{SECRET}@here/")


@caught_by("test_no_key_is_one_that_is[by way of the parent]", "test_no_key_is_one_that_is[absolute]")
class LooksAtNoKey(MemoryDriver):
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        if ".." not in key and not key.startswith("/"):
            return super().write_index(key, data, content_type, user_metadata, create_only)
        return self.store(os.path.normpath(key), [bytes(data)], content_type, user_metadata, create_only)


@caught_by("test_a_driver_works_in_a_forked_child")
class HangsInAForkedChild(MemoryDriver):
    process = os.getpid()

    @hookimpl
    def read_range(self, key, offset, length):
        if os.getpid() != self.process:
            threading.Event().wait()
        return super().read_range(key, offset, length)


@caught_by("test_a_driver_works_in_a_forked_child")
class GoesOnWithItsParentsConnection(MemoryDriver):
    _connection = None

    @hookimpl
    def read_range(self, key, offset, length):
        if self._connection is None:
            with socket.create_server(("127.0.0.1", 0)) as server:
                self._connection = socket.create_connection(server.getsockname())
                threading.Thread(target=_echo, args=server.accept()[:1], daemon=True).start()
        self._connection.sendall(b"?")
        assert self._connection.recv(1) == b"?"
        return super().read_range(key, offset, length)

    def close(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _echo(connection):
    with connection:
        while sent := connection.recv(100):
            connection.sendall(sent)


@caught_by("test_a_driver_can_be_used_after_it_was_closed")
class IsGoneAfterClose(MemoryDriver):
    closed = False

    def close(self):
        self.closed = True

    @hookimpl
    def read_range(self, key, offset, length):
        if self.closed:
            raise StoreError("the session is closed", key=key)
        return super().read_range(key, offset, length)
