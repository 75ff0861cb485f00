"""The pinned protoc (ADR 0005). `PYTHONPATH=tests/support python -m protoc` makes the generated modules anew."""

from __future__ import annotations

import sys
from pathlib import Path

from servers import install

import offload_proto

DEFINITIONS = Path(offload_proto.__file__).parent


def run_protoc(*arguments: str) -> None:
    """Run it in this process, with Google's own definitions at hand."""
    folder = install.protoc()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    from grpc_tools import protoc

    code = protoc.main(["protoc", *arguments, f"-I{folder / 'grpc_tools' / '_proto'}"])
    assert code == 0, f"protoc ended with {code}"


def generate(folder: Path) -> None:
    """Make the modules and stubs of all definitions, in a folder `offload_proto` in this one."""
    outputs = (f"--python_out={folder}", f"--pyi_out={folder}")
    run_protoc(f"-I{DEFINITIONS.parent}", *outputs, *map(str, sorted(DEFINITIONS.glob("*.proto"))))


if __name__ == "__main__":
    generate(DEFINITIONS.parent)
