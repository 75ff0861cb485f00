"""Data keys that Pulsar's Java client encrypted for elliptic curves: its own bytes, and what is not right."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from offload_core.format.messages.pem_keys import PemKeyProvider
from offload_hooks.errors import DecryptionError

# `openssl ecparam -name prime256v1 -genkey -param_enc explicit`, the form of Pulsar's documentation.
PEM = """-----BEGIN EC PARAMETERS-----
MIH3AgEBMCwGByqGSM49AQECIQD/////AAAAAQAAAAAAAAAAAAAAAP//////////
/////zBbBCD/////AAAAAQAAAAAAAAAAAAAAAP///////////////AQgWsY12Ko6
k+ez671VdpiGvGUdBrDMU7D2O848PifSYEsDFQDEnTYIhucEk2pmeOETnSa3gZ9+
kARBBGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tK
fA+eFivOM1drMV7Oy7ZAaDe/UfUCIQD/////AAAAAP//////////vOb6racXnoTz
ucrC/GMlUQIBAQ==
-----END EC PARAMETERS-----
-----BEGIN EC PRIVATE KEY-----
MIIBaAIBAQQgTZBiSb24C54GPnH+v4A5DuaIV+Qt26VhfVcZqJW2f6yggfowgfcC
AQEwLAYHKoZIzj0BAQIhAP////8AAAABAAAAAAAAAAAAAAAA////////////////
MFsEIP////8AAAABAAAAAAAAAAAAAAAA///////////////8BCBaxjXYqjqT57Pr
vVV2mIa8ZR0GsMxTsPY7zjw+J9JgSwMVAMSdNgiG5wSTamZ44ROdJreBn36QBEEE
axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54W
K84zV2sxXs7LtkBoN79R9QIhAP////8AAAAA//////////+85vqtpxeehPO5ysL8
YyVRAgEBoUQDQgAEX/54BpnoGzqCOmkHTBxSZhRIxNwvDDUMgv0+1fyaO+eTGqWW
D7ms0b5InHCQ6LCsieK+OwNWdVaqiiD0ynQrew==
-----END EC PRIVATE KEY-----
"""

# What `MessageCryptoBc` of Pulsar 4.0.8 made of b"hello world" for it: the data key, the vector, the ciphertext.
WRAPPED = bytes.fromhex(
    "047ad5afe4ccf408eb8ab50705681464a647218c21220c97f7799f2bd0f53e4591052f359ad8fcf4b9d023a119"
    "440fbc200a4717e1541eb18be979ca012e91de00bced9684476ba1c2d2d8a00d7c9624b78fba7e1c1674c85213"
    "4821520f1bbafa93d0a8a1593e4336e4b8185c8cd531880c8b6339"
)
VECTOR = bytes.fromhex("08d0a35c9b95abe7c1fc8005")
CIPHERTEXT = bytes.fromhex("9c294f646dfe5c7734a9a1ff358cb83fb472b72882d553655524c4")


def write_pem(folder, pem):
    (folder / "orders.pem").write_bytes(pem)
    return PemKeyProvider(directory=str(folder))


def test_what_the_java_client_encrypted_is_decrypted(tmp_path):
    data_key = write_pem(tmp_path, PEM.encode()).decrypt_data_key("orders", WRAPPED, {})
    assert AESGCM(data_key).decrypt(VECTOR, CIPHERTEXT, None) == b"hello world"


@pytest.mark.parametrize(
    "curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda each: each.name
)
def test_another_key_is_an_error_that_names_it(tmp_path, curve):
    other = ec.generate_private_key(curve).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    with pytest.raises(DecryptionError, match="does not decrypt by the private key") as caught:
        write_pem(tmp_path, other).decrypt_data_key("orders", WRAPPED, {})
    assert caught.value.found == "key 'orders'"


def test_a_data_key_that_is_cut_or_goes_on_or_has_a_changed_bit_does_not_decrypt(tmp_path):
    provider = write_pem(tmp_path, PEM.encode())
    places = range(len(WRAPPED))
    changed = [WRAPPED[:at] + bytes([WRAPPED[at] ^ 0x10]) + WRAPPED[at + 1 :] for at in places]
    for encrypted in [*(WRAPPED[:length] for length in places), WRAPPED + b"\0", *changed]:
        with pytest.raises(DecryptionError):
            provider.decrypt_data_key("orders", encrypted, {})
