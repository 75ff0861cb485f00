"""URLs as they are shown: never with what may be a credential."""

from __future__ import annotations

import pickle

import pytest

from offload_hooks.errors import ObjectNotFoundError, OptionError
from offload_hooks.shown_urls import holds_user, masked, shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("file:///data/tier", "file:///data/tier"),
        ("sqlite:/data/records.db", "sqlite:/data/records.db"),
        ("s3://user:secret@bucket/prefix", "s3://********@bucket/prefix"),
        ("s3://user:se/cr@et@bucket/prefix", "s3://********@bucket/prefix"),
        ("s3://user:se?cr#et@bucket", "s3://********@bucket"),
        ("zk:user:secret@host:2181/chroot", "zk:********@host:2181/chroot"),
        ("https://host/container?sig=secret#x", "https://host/container?********"),
        ("https://host/container#secret?x", "https://host/container#********"),
        ("s3://us er:secret@bucket", "s3://********@bucket"),
        ("", ""),
    ],
)
def test_user_password_query_and_fragment_are_masked(url, shown):
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no URL: a@b, what? x:y@z", "no URL: a@b, what? x:y@z"),
        ("cannot open 's3://u:secret@b/x', try", "cannot open 's3://********@b/x', try"),
        ("http://a:secret@b,http://c:secret@d/e e@f", "http://********@d/e e@f"),
        ("is it http://host:8080?", "is it http://host:8080?"),
    ],
)
def test_urls_in_a_text_are_masked(text, shown):
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("s3://a@bucket", True),
        ("sqlite:a:b@host/x", True),
        ("sqlite:/data/a:b@c.db", False),
        ("file:///data/a@b", False),
        ("sqlite:a@b.db", False),
    ],
)
def test_a_user_is_looked_for_where_a_host_would_be(url, holds):
    assert holds_user(url) is holds


def test_errors_show_no_credentials_of_urls_also_after_pickling():
    url = "s3://user:secret@bucket/x"
    error = OptionError(f"cannot open {url}", key=url, expected=3, found=url, hint="Look.")
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert "secret" not in f"{each} {each!r} {each.what} {each.found}"
        assert (each.expected, each.hint) == (3, "Look.")
    assert ObjectNotFoundError("gone", key=url).key == url  # a program's own look at what it asked for
