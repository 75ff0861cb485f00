"""The decorator of all compiled loops, and the cache of their machine code between processes.

numba's own cache checks the file that a function stands in, and not the functions and constants of other modules
that are compiled into it. Here the machine code of all kernels lies in one folder, named by a digest of the sources of
all of them: whatever changes in one, all are compiled anew. So kernels import from modules of kernels only, and a test
holds them to that. docs/adr/0049-kernel-bounds-and-cache.md.

numba is imported by the first call of a kernel: a command that reads no entries takes less time than that import.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from offload_hooks.private_files import FILE_MODE, is_private_folder, make_directories

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_log = logging.getLogger(__name__)

_PREFIX = "pulsar-offload-kernels-"
_BYTECODE = Path(__file__).parent / "__pycache__"
_SHARED_MODE = 0o755
_KEPT = 8
"""Digests whose machine code is kept in one place: those of other versions, and of bounds-checked runs."""


def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Compile a function on its first call, to run without the GIL; `inline` it into its callers.

    Its machine code is shared by all processes that can read and write the same cache.
    """
    if function is None:
        return functools.partial(kernel, inline=inline)
    return _Late(function, _dispatcher, {"inline": "always" if inline else "never"})


def intrinsic(function: Callable[..., Any]) -> Any:
    """Declare a function that writes the instructions of a call in a kernel; it imports numba itself."""
    return _Late(function, _intrinsic, {})


class _Late(functools.partial[Any]):
    """A function that is given to numba by its first call, or when a kernel that calls it is compiled.

    It is a `partial`, because that costs next to nothing in each later call: 30 ns of 250 and more.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[Callable[..., Any], dict[str, str]], Any],
        options: dict[str, str],
    ) -> None:
        functools.update_wrapper(self, function)
        self._make = make
        self._made: Any = None
        self.py_func, self.targetoptions = function, options  # numba asks for both, to inline it
        self._first = self._call_first  # kept: a partial has no reference of its own to what it is calling
        self._call(self._first)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__

    @property
    def _numba_type_(self) -> Any:
        """The type of this in a kernel that is being compiled; numba asks for it."""
        from numba.core.registry import cpu_target

        made = self._give()
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)

    def _call_first(self, *arguments: Any, **named: Any) -> Any:
        return self._give()(*arguments, **named)

    def _give(self) -> Any:
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            if self._made is None:
                self._made = self._make(self.py_func, self.targetoptions)
                self._call(self._made)
        return self._made

    def _call(self, function: Callable[..., Any]) -> None:
        self.__setstate__((function, (), {}, vars(self)))  # type: ignore[attr-defined]


def _dispatcher(function: Callable[..., Any], options: dict[str, str]) -> Any:
    import numba

    compiled = numba.njit(nogil=True, **options)(function)
    own, shared = _folder(), _shared_folder()
    if (own is not None or shared is not None) and not numba.config.DISABLE_JIT:
        compiled._cache = _Cache(own, shared, function)
    return compiled


def _intrinsic(function: Callable[..., Any], _: dict[str, str]) -> Any:
    from numba import extending

    return extending.intrinsic(function)


class _Cache:
    """The machine code of one kernel, a file for each of its signatures; numba calls these methods under its lock."""

    def __init__(self, own: Path | None, shared: Path | None, function: Callable[..., Any]) -> None:
        self.cache_path = str(own or shared)
        self._own = own
        self._places = [place for place in (own, shared) if place is not None]
        self._name = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function, or None: then it is compiled."""
        from numba.core.compiler import CompileResult

        target.refresh()
        name = self._file(signature, target.codegen())
        for place in self._places:
            try:
                stored = (place / name).read_bytes()
                return CompileResult._rebuild(target, *pickle.loads(stored))  # noqa: S301 - code, as what imports it
            except FileNotFoundError:
                continue
            except Exception:  # cut off by a crash, for instance: pickle has no one error for that
                _log.debug("compiled code of %s cannot be read", self._name, exc_info=True)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store a compiled function; if that fails, the next process compiles it again."""
        if compiled.library.has_dynamic_globals:
            raise TypeError(
                f"{self._name} has an address of this process in it, and must take it as an argument"
            )
        from numba.core.serialize import dumps

        if self._own is None:
            return
        path = self._own / self._file(signature, compiled.codegen)
        partial = path.with_name(f"{path.name}.{uuid4().hex}")
        with suppress(OSError):
            _make_private(self._own)
            try:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(dumps(compiled._reduce()))
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    def flush(self) -> None:
        """Forget nothing: another digest has another folder."""

    def _file(self, signature: Any, codegen: Any) -> str:
        key = (signature, codegen.magic_tuple(), sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
        return f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}"


@functools.cache
def _digest() -> str:
    """Digest of all that machine code depends on: the sources of all kernels, numba, and whether bounds are checked."""
    import numba

    digest = hashlib.sha256(f"{numba.__version__} {bool(numba.config.BOUNDSCHECK)}".encode())
    for name, source in sorted(_sources(files(__package__))):
        digest.update(f"\0{name}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()[:32]


def _sources(package: Traversable) -> Iterator[tuple[str, bytes]]:
    """Names and contents of this module and of all modules in packages that are named `kernels`."""
    yield "kernel", (package / "kernel.py").read_bytes()
    for part in package.iterdir():
        kernels = part / "kernels"
        if not part.name.startswith("__") and kernels.is_dir():  # others may not see what is in `__pycache__`
            for module in kernels.iterdir():
                if module.name.endswith(".py"):
                    yield f"{part.name}/{module.name}", module.read_bytes()


def _places() -> Iterator[Path]:
    """Folders that may hold machine code, the best first, as numba has them."""
    from numba.core import config
    from numba.misc.appdirs import AppDirs

    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield _BYTECODE
    of_user = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    if of_user.is_absolute():  # not so for a user without a home
        yield of_user


@functools.cache
def _folder() -> Path | None:
    """The folder of this digest, in the first place that can be written; None if none can be."""
    try:
        name = _PREFIX + _digest()
    except OSError:  # installed without sources
        _log.warning("kernels are compiled in each process: their sources cannot be read")
        return None
    for place in _places():
        folder = place / name
        try:
            is_new = not folder.exists()
            _make_private(folder)
            if not is_private_folder(folder):  # what others put there would be run
                continue
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
        except OSError:
            continue
        if is_new:
            _delete_old(place)
        return folder
    if _shared_folder() is not None:
        return None
    _log.warning(
        "kernels are compiled in each process, which takes up to a minute: no place for compiled code can be written;"
        " set NUMBA_CACHE_DIR to a folder that this user alone can write"
    )
    return None


@functools.cache
def _shared_folder() -> Path | None:
    """The folder beside the sources that their owner made for all users, by `share_compiled`; None if there is none.

    The owner of the sources can have any code run already; no other user may be able to write there.
    """
    with suppress(OSError):
        folder = _BYTECODE / (_PREFIX + _digest())
        found = folder.lstat()
        is_for_all = found.st_mode & (_SHARED_MODE | 0o022) == _SHARED_MODE
        if stat.S_ISDIR(found.st_mode) and is_for_all and found.st_uid in (0, Path(__file__).stat().st_uid):
            return folder
    return None


def share_compiled() -> Path | None:
    """Let all users of this machine, or image, read what is compiled now; answers where it is.

    Of use beside the sources only: None if it is kept elsewhere.
    """
    folder = _folder()
    if folder is None or folder.parent != _BYTECODE:
        return None
    for path in folder.iterdir():
        path.chmod(0o644)
    folder.chmod(_SHARED_MODE)
    return folder


def _make_private(folder: Path) -> None:
    """Make the folder, and those above it, for this user alone; but `__pycache__` is for all who import the package."""
    if folder.parent == _BYTECODE:
        _BYTECODE.mkdir(exist_ok=True)
    make_directories(folder)


def _delete_old(place: Path) -> None:
    """Delete the folders of all digests but the last used; a process that uses one still makes it anew."""
    with suppress(OSError):
        folders = sorted(place.glob(f"{_PREFIX}*"), key=lambda each: each.stat().st_mtime, reverse=True)
        for folder in folders[_KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)
