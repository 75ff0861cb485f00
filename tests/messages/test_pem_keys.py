"""The key provider `pem`: which file serves which name, what files may hold, and that it tells no secrets."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from scenes.messages import private_key, private_pem, public_pem, wrapped, write_keys

from offload_core.format.messages.pem_keys import PemKeyProvider
from offload_core.storage.tier import make_key_provider
from offload_hooks.errors import DecryptionError, OptionError, UnknownPluginError

DATA_KEY = bytes(range(32))


def unwraps(provider, name, of):
    """Whether the provider decrypts, under `name`, a data key of the private key `of`."""
    try:
        return provider.decrypt_data_key(name, wrapped(DATA_KEY, of), {}) == DATA_KEY
    except DecryptionError:
        return False


def write(path, content):
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    return write_keys(tmp_path / "keys", "orders", "payments")


def test_a_name_is_served_by_its_own_file_then_the_directory_then_the_default(folder, tmp_path):
    provider = PemKeyProvider(
        private_keys={"orders": str(folder / "payments.pem")},
        directory=str(folder),
        default_private_key=write(tmp_path / "any.pem", private_pem("any")),
    )
    assert unwraps(provider, "orders", "payments")
    assert unwraps(provider, "payments", "payments")
    assert unwraps(provider, "whatever", "any")


def test_a_name_without_a_file_has_no_key(folder):
    assert PemKeyProvider(directory=str(folder)).decrypt_data_key("nobody", b"", {}) is None
    assert PemKeyProvider(private_keys={"a": "a.pem"}).decrypt_data_key("nobody", b"", {}) is None


@pytest.mark.parametrize(
    "name", ["../keys/orders", "/etc/passwd", "", ".", "..", "a\0b", "sub/orders", "..\\orders"]
)
def test_a_name_does_not_lead_out_of_the_directory(folder, name):
    write_keys(folder / "sub", "orders")
    assert PemKeyProvider(directory=str(folder)).decrypt_data_key(name, b"", {}) is None


def test_names_and_files_may_come_as_text(folder):
    text = f"orders={folder}/orders.pem; clicks = {folder}/payments.pem"
    provider = make_key_provider("pem", {"privateKeys": text})
    assert unwraps(provider, "orders", "orders")
    assert unwraps(provider, "clicks", "payments")


@pytest.mark.parametrize(
    "option", ["default_private_key", "defaultPrivateKey", "private_key_path", "privateKeyPath"]
)
def test_the_default_has_the_names_of_pulsars_clients(folder, option):
    assert unwraps(make_key_provider("pem", {option: str(folder / "orders.pem")}), "x", "orders")


def test_a_file_may_be_a_url(folder):
    content = base64.b64encode(private_pem("orders")).decode()
    for place in ((folder / "orders.pem").as_uri(), f"data:application/x-pem-file;base64,{content}"):
        assert unwraps(PemKeyProvider(private_keys={"n": place}), "n", "orders")


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_both_forms_of_private_keys_are_read(tmp_path, form):
    place = write(tmp_path / "k.pem", private_pem("orders", form))
    assert unwraps(PemKeyProvider(default_private_key=place), "n", "orders")


def test_a_key_that_does_not_fit_is_an_error_that_names_it(folder):
    provider = PemKeyProvider(directory=str(folder))
    for encrypted in (wrapped(DATA_KEY, "payments"), b"", b"\0" * 256, b"x" * 1000):
        with pytest.raises(DecryptionError) as caught:
            provider.decrypt_data_key("orders", encrypted, {})
        assert caught.value.found == "key 'orders'"


SIGNING = ed25519.Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
LOCKED = private_key("orders").private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (SIGNING, "is of a kind that is not supported"),
        (LOCKED, "cannot be read"),
        (public_pem("orders"), "cannot be read"),
        (b"", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n", "cannot be read"),
    ],
    ids=["another kind", "locked", "public", "empty", "no base64"],
)
def test_a_file_that_has_no_key_for_us_is_refused(tmp_path, content, what):
    provider = PemKeyProvider(default_private_key=write(tmp_path / "k.pem", content))
    with pytest.raises(OptionError, match=what) as caught:
        provider.decrypt_data_key("orders", b"", {})
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"missing\.pem"):
        PemKeyProvider(default_private_key=str(tmp_path / "missing.pem")).decrypt_data_key("n", b"", {})


def test_a_data_url_that_is_wrong_is_not_shown():
    for url in ("data:;base64,sesame!", "data:,sesame"):
        with pytest.raises(OptionError) as caught:
            PemKeyProvider(default_private_key=url).decrypt_data_key("n", b"", {})
        assert "sesame" not in repr(caught.value)


@pytest.mark.parametrize("options", [{}, {"private_keys": "orders"}, {"private_keys": "=a"}, {"keys": "a"}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(OptionError):
        make_key_provider("pem", options)


def test_an_unknown_provider_is_refused_with_those_there_are():
    with pytest.raises(UnknownPluginError, match="Known: pem"):
        make_key_provider("pen", {})
