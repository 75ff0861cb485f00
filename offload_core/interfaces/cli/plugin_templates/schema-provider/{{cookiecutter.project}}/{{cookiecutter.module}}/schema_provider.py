"""The schema provider `{{ cookiecutter.name }}` for pulsar-offload.

What each method must do is in the docstrings of `offload_hooks.schemas`; they are the law. As it was made,
this provider reads AVRO definitions from a directory. Put your registry's client in the place of the files:
the comments name the points to consider, and the conformance suite checks the result.
"""

import errno
from pathlib import Path
from urllib.parse import quote

from offload_hooks.errors import SchemaError, StoreError, placed
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaHistory, SchemaVersion


class {{ cookiecutter.plugin }}:
    """Definitions in `directory`, in a file `<tenant>%2F<namespace>%2F<topic>.avsc` for each topic."""

    # Spell the options out; they may all be text. Make no request here. A default repr shows no option.
    def __init__(self, directory):
        self._directory = Path(directory)

    # Asked when a scan is planned, from many threads at once; `topic` is any text. None: no schema is
    # known. Messages name the version that they were written by, a number as the broker counts: give all
    # versions, oldest first. Here there is one definition, and it stands for all.
    def history(self, topic):
        file = self._directory / f"{quote(topic.removeprefix('persistent://'), safe='')}.avsc"
        with placed(key=file.name):
            definition = self._read(file)
            if definition is None:
                return None
            read_json(definition, "an AVRO definition", error=SchemaError)
        version = SchemaVersion(version=0, type="AVRO", definition=definition)
        return SchemaHistory(versions=(version,), stands_for_all=True)

    # Give back connections; a later call makes new ones.
    def close(self):
        pass

    # The one place where your client's errors become ours. A registry that does not answer is a
    # StoreUnavailableError; None would say that the topic has no schema. No secret may be in the text.
    def _read(self, file):
        try:
            return file.read_text("utf-8")
        except FileNotFoundError:
            if self._directory.is_dir():
                return None
            raise StoreError("the directory of definitions is not there") from None
        except UnicodeDecodeError as error:
            raise SchemaError("a definition is not text") from error
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # no file has this name
                return None
            raise StoreError(f"a definition cannot be read: {error.strerror}") from error
