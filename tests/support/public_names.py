"""The names that programs and plug-ins may use: of `pulsar_offload`, and of the modules of the plug-in contract."""

from collections.abc import Sequence
from types import ModuleType

CONTRACT = (
    "offload_hooks",
    *(
        f"offload_hooks.{name}"
        for name in (
            "async_client",
            "errors",
            "filters",
            "schemas",
            "key_providers",
            "metadata_stores",
            "ledger_stores",
            "testing",
        )
    ),
)


def public_names(module: ModuleType) -> Sequence[str]:
    """The names that a module lists, or else those that it defines."""
    defined = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    listed: Sequence[str] = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    return listed
