"""The provider passes the suite that every key provider must pass."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from offload_hooks.testing import KeyProviderConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}
from {{ cookiecutter.module }}.key_provider import OAEP

DATA_KEYS = {"orders": b"o" * 32, "payments": bytes(range(32))}


@pytest.fixture(scope="module")
def private_keys():
    return {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in DATA_KEYS}


class Test{{ cookiecutter.plugin }}(KeyProviderConformance):
    # Texts that no repr and no error may show: what your provider is given as passwords or tokens.
    secrets = ("PRIVATE KEY",)

    @pytest.fixture
    def make_provider(self):
        return {{ cookiecutter.plugin }}

    # Fill your key service here, by another way than your provider.
    @pytest.fixture
    def options(self, private_keys, tmp_path):
        for name, key in private_keys.items():
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            (tmp_path / f"{name}.pem").write_bytes(pem)
        return {"directory": str(tmp_path)}

    # By the name of a key, a data key as a producer encrypted it, and in plain.
    @pytest.fixture
    def data_keys(self, private_keys):
        return {
            name: (private_keys[name].public_key().encrypt(data_key, OAEP), data_key)
            for name, data_key in DATA_KEYS.items()
        }

    # A service that does not answer.
    @pytest.fixture
    def unreachable(self, tmp_path):
        return {"directory": str(tmp_path / "missing")}
