"""Drivers that lie about a tier: what is in it, who made it, what can be asked of it."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

from planting import SECRET, SEQUENCES, caught_by

from offload_hooks import ListedObject, hookimpl
from offload_hooks.errors import ObjectExistsError, StoreError
from offload_hooks.testing import MemoryDriver

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
