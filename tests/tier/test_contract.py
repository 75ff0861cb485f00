"""The contract itself: every hook is documented, and every error survives what errors go through."""

from __future__ import annotations

import inspect
import pickle

import pytest

from offload_hooks import OPTIONAL_HOOKS, PROJECT, TierHooks, errors
from offload_hooks.errors import OffloadError, StoreUnavailableError

HOOKS = {name: f for name, f in vars(TierHooks).items() if hasattr(f, f"{PROJECT}_spec")}


def error_classes():
    found = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, OffloadError)
    ]
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_each_hook_is_documented_typed_and_takes_the_first_answer(name):
    hook = HOOKS[name]
    first_line = (inspect.getdoc(hook) or "").split("\n")[0]
    assert len(first_line) > 20
    assert first_line.endswith((".", ","))
    signature = inspect.signature(hook)
    assert signature.return_annotation is not signature.empty
    assert all(p.annotation is not p.empty for p in list(signature.parameters.values())[1:])
    assert getattr(hook, f"{PROJECT}_spec")["firstresult"] is True


def test_all_public_methods_of_the_specs_are_hooks():
    assert set(HOOKS) == {name for name in vars(TierHooks) if not name.startswith("_")}
    assert set(HOOKS) > OPTIONAL_HOOKS


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_each_error_states_all_its_fields_and_survives_pickling(kind):
    error = kind(
        "reading failed",
        key="a/b",
        ledger_id=7,
        block=2,
        entry_id=3,
        offset=0,
        expected=1,
        found=2,
        hint="Try.",
    )
    text = "reading failed (object a/b, ledger 7, block 2, entry 3, byte 0): expected 1, found 2. Try."
    assert str(error) == text
    assert str(kind("reading failed")) == "reading failed"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.fields() == error.fields()
    assert str(again) == str(error)
    assert repr(again) == repr(error)
    assert kind.__doc__


def test_errors_are_the_standard_ones_that_they_mean():
    assert issubclass(errors.ObjectNotFoundError, FileNotFoundError)
    assert issubclass(errors.ObjectExistsError, FileExistsError)
    assert issubclass(errors.AccessDeniedError, PermissionError)
    assert issubclass(errors.FormatError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert [k.__name__ for k in error_classes() if k.retryable] == [
        "StoreTimeoutError",
        "StoreUnavailableError",
        "StoreUnreachableError",
    ]


def test_the_place_is_filled_in_but_not_overwritten():
    error = OffloadError("bad", offset=0).at(offset=9, key="k")
    assert error.fields() == {"what": "bad", "key": "k", "offset": 0}
    with pytest.raises(TypeError, match="no place called 'hint'"):
        error.at(hint="x")


def test_a_waiting_time_survives_pickling():
    error = pickle.loads(pickle.dumps(StoreUnavailableError("busy", key="k", retry_after_s=2.5)))
    assert (error.retry_after_s, error.key, error.fields()["retry_after_s"]) == (2.5, "k", 2.5)
    assert "retry_after_s" not in StoreUnavailableError("busy").fields()
