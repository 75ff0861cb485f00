from __future__ import annotations

import pytest

from offload_core.storage.tier.urls import parse_layers, parse_plugin
from offload_hooks.errors import OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retry", ("retry", {})),
        (" retry ", ("retry", {})),
        ("retry:", ("retry", {})),
        ("retry:attempts=5", ("retry", {"attempts": "5"})),
        ("retry: attempts = 5 , budget_s=60,", ("retry", {"attempts": "5", "budget_s": "60"})),
        ("block-cache:directory=/a:b=c", ("block-cache", {"directory": "/a:b=c"})),
    ],
)
def test_a_layer_is_a_name_and_options(text, expected):
    assert parse_plugin(text, "layer") == expected


@pytest.mark.parametrize("text", ["", ":a=1", "retry:attempts", "retry:=5", "retry:a=1,a=2", "re try", "a=b"])
def test_another_form_is_refused(text):
    with pytest.raises(OptionError, match="NAME or NAME:OPTION=VALUE"):
        parse_plugin(text, "layer")


def test_what_may_be_secret_is_not_shown():
    with pytest.raises(OptionError) as caught:
        parse_plugin("retry:hunter2", "layer")
    assert "hunter2" not in str(caught.value)


def test_layers_have_semicolons_between_them():
    assert parse_layers(" metrics; retry:attempts=5,jitter_s=1 ;") == (
        "metrics",
        "retry:attempts=5,jitter_s=1",
    )
    assert parse_layers("") == ()
