"""Removing everything that an examination made, and saying what could not be removed.

Uploads are dropped and objects deleted one by one, so that one that cannot be does not keep the others: those that
are known here, and those that the store lists under our prefix. Whatever is not seen to be gone is left behind.
"""

from __future__ import annotations

import contextlib

from offload_core.doctor.advice import REPORT_DRIVER, advice
from offload_core.doctor.findings import Finding, failed, ok, skipped
from offload_core.doctor.probe import Probe
from offload_hooks import Upload
from offload_hooks.errors import ObjectNotFoundError, OffloadError

_LISTED = 1000

_Made = dict[str, Upload | str]
"""Uploads and keys, by the names that people are told."""


def clean_up(probe: Probe) -> tuple[Finding, tuple[str, ...]]:
    """Remove what was made; what was found, and the names of what is left behind."""
    if not probe.keys:
        return skipped("nothing was made"), ()
    left: _Made = _named(probe.uploads) | {key: key for key in probe.keys}
    faults: dict[str, None] = {}
    try:
        left |= _listed_uploads(probe) | _listed_objects(probe)
        for name, made in list(left.items()):
            fault = _remove(probe, made)
            if fault is None:
                del left[name]
            else:
                faults[fault] = None
        left |= _listed_uploads(probe)
    except KeyboardInterrupt:
        faults["It was broken off."] = None
    if not left:
        return ok("everything that was made is gone"), ()
    by_hand = f"Remove by hand what begins with {probe.prefix!r}."
    return failed(f"{len(left)} left behind: {', '.join(left)}", " ".join([*faults, by_hand])), tuple(left)


def _named(uploads: dict[Upload, None]) -> _Made:
    return {f"{upload.key} (upload {upload.upload_id})": upload for upload in uploads}


def _listed_uploads(probe: Probe) -> _Made:
    if not probe.capabilities.stale_uploads:
        return {}
    with contextlib.suppress(Exception):  # those that are known are removed even so
        return _named({found.upload: None for found in probe.list_uploads(probe.prefix, limit=_LISTED)})
    return {}


def _listed_objects(probe: Probe) -> _Made:
    with contextlib.suppress(Exception):
        return {found.key: found.key for found in probe.list_objects(probe.prefix, limit=_LISTED)}
    return {}


def _remove(probe: Probe, made: Upload | str) -> str | None:
    """Why an upload or object is still there; None if it is gone."""
    fault = "The store says that it is gone, and has it still."
    try:
        if isinstance(made, Upload):
            probe.abort_data(made)
            return None
        probe.delete([made])
    except OffloadError as error:
        fault = advice(probe.description.name, probe.hook, error)
    except Exception as error:  # a driver's own code may raise anything; its text may hold a credential
        fault = f"The driver raised {type(error).__name__}. {REPORT_DRIVER}"
    return None if isinstance(made, str) and _is_gone(probe, made) else fault


def _is_gone(probe: Probe, key: str) -> bool:
    with contextlib.suppress(Exception):
        try:
            probe.stat(key)
        except ObjectNotFoundError:
            return True
    return False
