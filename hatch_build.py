"""What pulsar-offload depends on: the list in pyproject.toml, and the hooks of the same commit."""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """The hooks come from the folder beside this file, unless OFFLOAD_HOOKS says which version, as `make dist` does."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dependencies."""
        hooks = os.environ.get("OFFLOAD_HOOKS", f" @ {Path(self.root, 'hooks').as_uri()}")
        metadata["dependencies"] = [*self.config["dependencies"], f"pulsar-offload-hooks{hooks}"]
