"""The key provider `{{ cookiecutter.name }}` for pulsar-offload.

What each method must do is in the docstrings of `offload_hooks.key_providers`; they are the law. As it was
made, this provider has RSA keys in a directory. Put your key service's client in the place of `_service`:
the comments name the points to consider, and the conformance suite checks the result.
"""

from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from offload_hooks.errors import DecryptionError, OptionError, StoreError

# How all of Pulsar's clients encrypt data keys for RSA.
OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)

MOST_NAME_BYTES = 200


class {{ cookiecutter.plugin }}:
    """Private keys in `directory`, in a file `NAME.pem` for the key of each name."""

    # Spell the options out; they may all be text. Make no request here. A default repr shows no option.
    def __init__(self, directory):
        self._directory = Path(directory)

    # Asked for each data key that messages carry, in any thread. `name` comes from stored data: it may be
    # any text, and must not lead to another place. None: there is no key of this name. `metadata` has what
    # the producer noted about its key, a version for instance.
    def decrypt_data_key(self, name, encrypted, metadata):
        key = self._service(name)
        if key is None:
            return None
        try:
            return key.decrypt(encrypted, OAEP)
        except ValueError:  # whose text may be about the key
            raise DecryptionError("a data key does not decrypt by its key", found=f"key {name!r}") from None

    # The one place where your client's errors become ours. A service that does not answer is a
    # StoreUnavailableError; None would say that there is no key. No secret and no key may be in the text.
    def _service(self, name):
        file = quote(name, safe="")
        if not self._directory.is_dir():
            raise StoreError("the directory of keys is not there")
        if len(file) > MOST_NAME_BYTES:
            return None
        try:
            return load_pem_private_key((self._directory / f"{file}.pem").read_bytes(), password=None)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"a key cannot be read: {error.strerror}", key=file) from error
        except (ValueError, TypeError):
            raise OptionError("a file is no private key without a password", key=file) from None
