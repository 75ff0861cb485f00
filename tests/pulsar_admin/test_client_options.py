"""The options of a client of an admin REST: servers, tokens and certificates; what is said of them, and what never."""

from __future__ import annotations

import logging

import pytest
from network.admin import TOKEN, AdminRest, asked, raises_without, reason
from network.fronts import make_certificate

from offload_core.storage.pulsar_admin import Credentials, parse_servers, read_token
from offload_hooks.errors import OptionError, StoreUnavailableError
from offload_hooks.tls_options import tls_context


def test_servers_of_a_url():
    assert parse_servers("http://Broker:8080/") == ("http://broker:8080",)
    assert parse_servers("https://a,b:8443, [::1]:9") == (
        "https://a:443",
        "https://b:8443",
        "https://[::1]:9",
    )
    assert parse_servers("HTTP://a:80,a") == ("http://a:80",)


@pytest.mark.parametrize(
    "url",
    ["http://", "http:a", "ftp://a", "http://a/admin", "http://a?x=1", "http://a#x", "http://a,,b", "http://a:b",
     "http://a:99999", "http://a\nb", "http://a\\b"],
)  # fmt: skip
def test_other_urls_are_refused(url):
    with pytest.raises(OptionError):
        parse_servers(url)


def test_a_user_in_a_url_is_refused_and_not_shown():
    with raises_without(TOKEN, OptionError, match="must not hold a user or password"):
        parse_servers(f"http://me:{TOKEN}@broker:8080")


def test_a_token_is_text_or_in_a_file_and_never_shown(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(TOKEN, None) == read_token(None, str(file)) == TOKEN
    assert read_token(None, None) is None
    assert TOKEN not in repr(Credentials(token=TOKEN))
    with pytest.raises(OptionError, match="exclude each other"):
        read_token(TOKEN, str(file))
    with pytest.raises(OptionError, match=r"'token_file' cannot be read.*FileNotFoundError"):
        read_token(None, str(tmp_path / "nothing"))
    for bad in ("", "geheim\ngeheim", "geheim geheim", "geheimß"):
        with raises_without("geheim", OptionError):
            read_token(bad, None)


def test_certificates_that_are_none_are_refused(tmp_path):
    certificate, key = make_certificate(tmp_path)
    with pytest.raises(OptionError, match="'ca_bundle' cannot be read"):
        tls_context(str(key), None, None)
    with pytest.raises(OptionError, match="'client_certificate' cannot be read"):
        tls_context(None, str(tmp_path / "nothing"), None)
    with pytest.raises(OptionError, match="'client_key' is of no use"):
        tls_context(None, None, str(key))
    tls_context(str(certificate), str(certificate), str(key))


def test_no_log_holds_the_token(caplog):
    caplog.set_level(logging.DEBUG)
    with AdminRest({"/tenants": reason(503, "not now")}) as rest, pytest.raises(StoreUnavailableError):
        asked(rest.url, attempts=2)
    assert caplog.records
    assert TOKEN not in caplog.text
