"""The HDFS client of each process: made at its first use there, with the options' user, configuration and ticket.

A client has threads of its own, which a fork does not copy: what the parent made never answers in the child. So each
process makes its own. What it inherited must not even be freed, since that waits for the parent's threads: a forked
child keeps it for ever.

The library also keeps connections to DataNodes for the next reader, whichever client that has, for three seconds. In a
forked child these are the parent's: both would read each other's answers. So a child begins once they have expired.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
import weakref
from pathlib import Path
from typing import Any

from hdfs_native import Client

from offload_drivers.hdfs.client import HdfsClient
from offload_drivers.hdfs.errors import translation
from offload_drivers.hdfs.options import HdfsOptions
from offload_hooks.errors import OffloadError, OptionError

USER = "HADOOP_USER_NAME"

INHERITED_S = 3.2
"""For how long after a fork the library would use the parent's connections to DataNodes: 3 s, and a little."""

_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_begins_at = 0.0
_user_set_by_option: dict[str, str] = {}
"""The process's user, by `USER`, once an option has set it."""


class Connections:
    """The client of the calling process; another one after a fork, after `close`, and after one that hangs."""

    def __init__(self, options: HdfsOptions) -> None:
        self._options = options
        self._made: dict[int, HdfsClient] = {}

    def get(self) -> HdfsClient:
        """This process's client."""
        # No lock, which a fork could copy while it is held: the second thread uses what the first one made.
        process = os.getpid()
        client = self._made.get(process)
        if client is not None and client.hangs:
            self._made.pop(process, None)
            client = None
        if client is None:
            client = self._made.setdefault(process, _connected(self._options))
        return client

    def close(self) -> None:
        """Give back this process's client; a later use makes a new one."""
        self._made.pop(os.getpid(), None)


def kept_by_children(owner: object) -> None:
    """From now on a forked child never frees this object, which owns something of a client's."""
    _watch_forks()
    _owners.add(owner)


def _connected(options: HdfsOptions) -> HdfsClient:
    try:
        raw = _native(options)
    except OffloadError:
        raise
    except Exception as error:
        raise translation(error, "make a client", options.file_system) from error
    client = HdfsClient(raw, options.location, options.timeout_s, options.replication)
    kept_by_children(client)
    return client


def _native(options: HdfsOptions) -> Any:
    if options.config_dir and not Path(options.config_dir).is_dir():  # the library would go on without one
        raise OptionError("the option 'config_dir' is no directory here", found=repr(options.config_dir))
    _take_user(options.user)
    time.sleep(max(0.0, _begins_at - time.monotonic()))
    return Client(
        options.file_system if options.authority else None,
        _settings(options),
        options.config_dir or None,
        kerberos_principal=options.kerberos_principal or None,
        kerberos_keytab=options.kerberos_keytab or None,
        kerberos_cache=options.kerberos_cache or None,
    )


def _settings(options: HdfsOptions) -> dict[str, str]:
    """Settings that go before those of the configuration.

    The library's own patience, 15 attempts over minutes, is not ours: who wants retries puts the layer over us. Three
    more attempts find the active one of a few NameNodes. A DataNode that hangs is given up early enough for another
    one to be asked.
    """
    return {
        "dfs.client.failover.max.attempts": "3",
        "dfs.client.failover.sleep.base.millis": "50",
        "dfs.client.failover.sleep.max.millis": "500",
        "dfs.client.socket-timeout": str(max(1, int(options.timeout_s * 1000 / 3))),
    }


def _take_user(user: str) -> None:
    """Make `user` this process's simple user: the library knows but the environment, whenever it connects.

    So one process has one user; a second one is refused, rather than writing objects as another user.
    """
    current = os.environ.get(USER, "")
    if user and not current:
        # One step, so that of two threads one is first; no lock, which a fork could copy while it is held.
        current = os.environ[USER] = _user_set_by_option.setdefault(USER, user)
    if user != current and (user or current == _user_set_by_option.get(USER)):
        raise OptionError(
            f"this process is already {current!r} to HDFS, which takes one user for a process",
            expected=repr(user) if user else "the option 'user' as in the process's other driver",
            found=repr(current),
            hint=f"Use another process, or set {USER} alone.",
        )


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_begin_child)


def _begin_child() -> None:
    global _begins_at
    _begins_at = time.monotonic() + INHERITED_S
    for owner in list(_owners):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
