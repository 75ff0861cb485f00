"""Private files: who may read them, what is planted in their place, and what a crash leaves of their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from offload_hooks.private_files import check_file, create_file, make_directories, open_file, replacing


@pytest.fixture(autouse=True)
def no_umask():
    umask = os.umask(0)
    yield
    os.umask(umask)


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def opened(path):
    os.close(open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT))


def replaced(path):
    with replacing(path) as file:
        file.write(b"new")


WAYS: dict[str, Callable[[Path], None]] = {"open": opened, "create": create_file, "replace": replaced}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_created_is_for_its_owner_alone_from_the_beginning(way, tmp_path, monkeypatch):
    seen = []
    real = os.open

    def watching(path, flags, mode=0o777, **where):
        descriptor = real(path, flags, mode, **where)
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode) if flags & os.O_CREAT else 0o600)
        return descriptor

    monkeypatch.setattr(os, "open", watching)
    WAYS[way](tmp_path / "file")
    assert set(seen) == {0o600}
    assert mode_of(tmp_path / "file") == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_folders_are_for_their_owner_alone_and_those_that_are_there_stay(tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    make_directories(tmp_path / "a" / "b" / "c")
    assert [mode_of(tmp_path / each) for each in ("a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700]
    make_directories(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_directories(tmp_path / "file" / "below")


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_there_keeps_its_mode(way, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    WAYS[way](path)
    assert mode_of(path) == 0o644
    assert path.read_bytes() == (b"new" if way == "replace" else b"old")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_a_link_is_not_followed(way, target, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"victim")
    link = tmp_path / "file"
    link.symlink_to(tmp_path / target)
    if way == "replace":
        replaced(link)
        assert not link.is_symlink()
    else:
        with pytest.raises(OSError, match="symbolic links"):
            WAYS[way](link)
        assert link.is_symlink()
    assert victim.read_bytes() == b"victim"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_several_names_is_not_written_to(way, tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"victim")
    link.hardlink_to(victim)
    if way == "open":
        with pytest.raises(OSError, match="hard links"):
            opened(link)
        os.close(open_file(link, os.O_RDONLY))
    else:
        WAYS[way](link)
    assert victim.read_bytes() == b"victim"


@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_or_a_folder_is_refused_and_not_waited_for(way, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises((PermissionError, IsADirectoryError)):
            WAYS[way](tmp_path / name)
        with pytest.raises((PermissionError, IsADirectoryError)):
            check_file(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_replacement_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with suppress(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_file_that_is_written_meanwhile_has_a_name_that_is_not_guessed(tmp_path):
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "file"):
            names |= set(os.listdir(tmp_path)) - {"file"}
    assert len(names) == 3


@pytest.mark.parametrize("name", ["é" * 127, "x" * 255])
def test_the_longest_names_can_be_replaced(name, tmp_path):
    replaced(tmp_path / name)
    create_file(tmp_path / name[::-1])
    assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("way", WAYS)
def test_names_are_durable(way, tmp_path, synced):
    WAYS[way](tmp_path / "file")
    assert synced[-1] == tmp_path
    if way == "replace":
        assert len(synced) == 2  # the bytes before


def test_names_of_folders_are_durable(tmp_path, synced):
    make_directories(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_without_hard_links_a_file_is_created_all_the_same(tmp_path, monkeypatch):
    def refusing(*arguments, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refusing)
    create_file(tmp_path / "file")
    assert mode_of(tmp_path / "file") == 0o600
    assert os.listdir(tmp_path) == ["file"]
