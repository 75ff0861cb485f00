"""Where the machine code of kernels is kept: compiled anew for other sources, in memory where nothing is writable."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import offload_core

pytestmark = pytest.mark.sampled(12)  # most compile for seconds

PACKAGE = Path(offload_core.__file__).parent
FOLDERS = "pulsar-offload-kernels-*"

READ_A_PROPERTY = """
import logging
logging.basicConfig(format="%(message)s")
import numpy as np
from offload_core.format.codec.kernels.mapfile import locate_records
from offload_core.format.messages.kernels.column_spans import _read_property
one = np.zeros(1, np.int64)
status, *_ = locate_records(np.zeros(3, np.uint8), 0, 3, np.zeros(16, np.uint8), 0, 1, 1, one, one, one)
print(status, *_read_property(np.frombuffer(b"\\x0a\\x01k\\x12\\x02vv", np.uint8), 0, 7))
"""
RIGHT = "2 2 1 5 2\n"


@pytest.fixture
def copy():
    """A folder with a copy of the package, which other users can be allowed to read."""
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(PACKAGE, folder / "offload_core", ignore=shutil.ignore_patterns("__pycache__"))
        yield folder
    finally:
        shutil.rmtree(folder)


def run(copy, program=READ_A_PROPERTY, **more):
    """What a fresh process prints and logs that imports the package from `copy`; None takes a variable away."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"} | more
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=copy,
        env={name: value for name, value in environment.items() if value is not None},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("module", "before", "after", "answer"),
    [
        ("codec/kernels/frames.py", "\nBAD_FRAME = 2\n", "\nBAD_FRAME = 7\n", "7 2 1 5 2\n"),
        (
            "messages/kernels/protobuf_fields.py",
            "return np.int64(byte), np.int64(position)",
            "return np.int64(byte // 2), np.int64(position)",
            "2 0 -1 0 -1\n",
        ),
    ],
    ids=["a constant of another module", "a kernel of another module"],
)
def test_a_change_in_a_module_that_a_kernel_imports_is_compiled_into_it(
    copy, tmp_path, module, before, after, answer
):
    for _ in range(2):
        assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == (RIGHT, "")
    changed = copy / "offload_core" / "format" / module
    assert changed.read_text().count(before) == 1
    changed.write_text(changed.read_text().replace(before, after))
    assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == (answer, "")
    changed.write_text(changed.read_text().replace(after, before))
    assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == (RIGHT, "")
    assert len(list(tmp_path.glob(FOLDERS))) == 2


OUT_OF_BOUNDS = """
import numpy as np
from offload_core.format.codec.kernels.frames import _number
_number(np.empty(4, np.int64)[:2], 0, 3)
"""
COUNT_COMPILED = """
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    exec({program!r})
print(len(compiled.buffer) // 2)
"""


@pytest.mark.long
def test_machine_code_with_and_without_bounds_checks_is_kept_apart(copy, tmp_path):
    for checked, ending in (("0", ""), ("1", "IndexError"), ("0", ""), ("1", "IndexError")):
        program = f"try:\n exec({OUT_OF_BOUNDS!r})\nexcept IndexError:\n print('IndexError')"
        shown, _ = run(copy, program, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_BOUNDSCHECK=checked)
        assert shown.strip() == ending
    assert len(list(tmp_path.glob(FOLDERS))) == 2


@pytest.mark.long
def test_a_second_process_compiles_nothing(copy, tmp_path):
    program = COUNT_COMPILED.format(program=READ_A_PROPERTY)
    first, second = (run(copy, program, NUMBA_CACHE_DIR=str(tmp_path))[0].split()[-1] for _ in range(2))
    assert int(first) > 2
    assert int(second) == 0


FIRST_CALLS = """
import pickle, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
import numpy as np
from offload_core.format.codec.kernels.frames import are_borders
together = Barrier(8)
offsets = np.arange(3)
def call(last):
    together.wait()
    return are_borders(offsets, 0, 2, last)
print("numba" in sys.modules)
with ThreadPoolExecutor(8) as threads:
    print(sorted(threads.map(call, range(8))))
print(len(are_borders.func.signatures), pickle.loads(pickle.dumps(are_borders)) is are_borders)
"""


def test_threads_that_make_the_first_call_together_compile_once(copy, tmp_path):
    shown, _ = run(copy, FIRST_CALLS, NUMBA_CACHE_DIR=str(tmp_path))
    assert shown == f"False\n{[False] * 2 + [True] * 6}\n1 True\n"


@pytest.mark.long
def test_compiled_code_that_a_crash_cut_off_is_made_again(copy, tmp_path):
    run(copy, NUMBA_CACHE_DIR=str(tmp_path))
    (folder,) = tmp_path.glob(FOLDERS)
    for number, path in enumerate(sorted(folder.iterdir())):
        path.write_bytes(path.read_bytes()[: number * 100])
    assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == (RIGHT, "")
    program = COUNT_COMPILED.format(program=READ_A_PROPERTY)
    assert run(copy, program, NUMBA_CACHE_DIR=str(tmp_path))[0].split()[-1] == "0"


def test_code_is_kept_for_this_user_alone(copy, tmp_path):
    run(copy, "import os\nos.umask(0)\n" + READ_A_PROPERTY, NUMBA_CACHE_DIR=str(tmp_path))
    (folder,) = tmp_path.glob(FOLDERS)
    kept = list(folder.iterdir())
    assert kept
    assert {path.stat().st_mode & 0o077 for path in (folder, *kept)} == {0}


@pytest.mark.long
def test_others_can_use_the_bytecode_beside_the_code_that_is_kept(copy):
    run(copy, "import os\nos.umask(0o022)\n" + READ_A_PROPERTY, NUMBA_CACHE_DIR=None)
    bytecode = copy / "offload_core" / "format" / "__pycache__"
    (folder,) = bytecode.glob(FOLDERS)
    assert bytecode.stat().st_mode & 0o777 == 0o755
    assert folder.stat().st_mode & 0o777 == 0o700


def test_code_that_another_user_may_have_put_there_is_not_run(copy, tmp_path):
    right = run(copy, NUMBA_CACHE_DIR=str(tmp_path))
    (folder,) = tmp_path.glob(FOLDERS)
    planted = b"cposix\nsystem\n(S'touch %s/planted'\ntR." % os.fsencode(tmp_path)
    for path in folder.iterdir():
        path.write_bytes(planted)
    folder.chmod(0o777)
    assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == right
    assert not (tmp_path / "planted").exists()
    folder.chmod(0o700)
    run(copy, NUMBA_CACHE_DIR=str(tmp_path))
    assert (tmp_path / "planted").exists()  # so that this test would see it


def test_of_other_digests_the_last_used_are_kept(copy, tmp_path):
    for number in range(20):
        old = tmp_path / f"pulsar-offload-kernels-{number}"
        old.mkdir()
        (old / "code").touch()
        os.utime(old, (number, number))
    (tmp_path / "another folder").mkdir()
    run(copy, NUMBA_CACHE_DIR=str(tmp_path))
    kept = {path.name.removeprefix("pulsar-offload-kernels-") for path in tmp_path.iterdir()}
    assert {"another folder", *map(str, range(13, 20))} < kept
    assert len(kept) == 9


@pytest.mark.parametrize("cache_folder", [None, "a file", "below a file"])
def test_where_no_place_can_be_written_kernels_work_and_one_warning_names_the_setting(
    copy, tmp_path, cache_folder
):
    (copy / "offload_core" / "format" / "__pycache__").touch()
    (tmp_path / "file").touch()
    place = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "cache"}.get(cache_folder or "")
    shown, logged = run(
        copy,
        NUMBA_CACHE_DIR=place and str(place),
        HOME=str(tmp_path / "file"),
        XDG_CACHE_HOME=str(tmp_path / "file" / "of user"),
    )
    assert shown == RIGHT
    assert len(logged.splitlines()) == 1
    assert "NUMBA_CACHE_DIR" in logged


AS_ANOTHER_USER = """
import os, sys
exec({program!r})  # imports all else while this user can read it
for name in [name for name in sys.modules if name.startswith("offload_core")]:
    del sys.modules[name]
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
exec({program!r})
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without a home")
@pytest.mark.parametrize("bytecode_mode", [None, 0o755, 0o700])
def test_a_user_without_a_home_and_without_a_name_can_import_and_is_warned_once(copy, bytecode_mode):
    copy.chmod(0o755)
    if bytecode_mode is not None:
        (copy / "offload_core" / "format" / "__pycache__").mkdir(bytecode_mode)
    program = AS_ANOTHER_USER.format(program=READ_A_PROPERTY)
    shown, logged = run(copy, program, NUMBA_CACHE_DIR=None, HOME=None, XDG_CACHE_HOME=None)
    assert shown == RIGHT + RIGHT
    assert len(logged.splitlines()) == 1
    assert "NUMBA_CACHE_DIR" in logged
    assert not (copy / "~").exists()


SHARE = "\nfrom offload_core.format.kernel import share_compiled\nassert share_compiled()\n"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_what_the_owner_of_the_sources_shares_is_run_by_all_users_unless_others_can_write_there(
    copy, tmp_path
):
    copy.chmod(0o755)
    nowhere = {"NUMBA_CACHE_DIR": None, "HOME": None, "XDG_CACHE_HOME": None}
    assert run(copy, READ_A_PROPERTY + SHARE, **nowhere)[0] == RIGHT
    (folder,) = (copy / "offload_core" / "format" / "__pycache__").glob(FOLDERS)
    program = AS_ANOTHER_USER.format(program=READ_A_PROPERTY)
    assert run(copy, program, **nowhere) == (RIGHT + RIGHT, "")
    for path in folder.iterdir():
        path.write_bytes(b"cos\n_exit\n(I7\ntR.")
    with pytest.raises(AssertionError, match="returncode"):
        run(copy, program, **nowhere)  # so that this test would see it
    folder.chmod(0o777)
    shown, _ = run(copy, NUMBA_CACHE_DIR=None, HOME=str(tmp_path), XDG_CACHE_HOME=None)
    assert shown == RIGHT


def test_kernels_import_from_modules_of_kernels_only():
    """Else the digest would not see a change in what is compiled into them."""
    digested = {"offload_core.format.kernel"}
    wrong = []
    for path in PACKAGE.rglob("kernels/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            wrong += [
                f"{path.relative_to(PACKAGE)}: {name}"
                for name in names
                if name and name.startswith("offload_") and ".kernels" not in name and name not in digested
            ]
    assert wrong == []


def test_all_kernels_have_the_one_decorator():
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "njit" in path.read_text() or "numba.jit" in path.read_text()
    }
    assert users == {"format/kernel.py"}
