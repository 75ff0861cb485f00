"""The driver `filesystem`: what Pulsar calls so, its MapFiles on a `file:` or `hdfs:` root, by Pulsar's own options.

The driver itself is `local` or `hdfs`, whichever the URL says. Of the profile (a Hadoop configuration file) one
property is read: `fs.defaultFS`, where no URL is given. The rest is of the cluster or of how Pulsar writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from offload_hooks.errors import OptionError
from offload_hooks.shown_urls import shown_url

MAX_PROFILE_BYTES = 1 << 20

_FILE_SYSTEM = "fs.defaultFS"


class FilesystemDriver:
    """A tier in a directory of this machine, or of HDFS: constructing it gives a `LocalDriver` or an `HdfsDriver`.

    Args:
        url: `file:///path` or `hdfs://host:port/path`; else the profile's `fs.defaultFS`.
        profile_path: Hadoop configuration files, with commas between, as Pulsar has it; the last one counts.
        user: as of `HdfsDriver`, as are those that follow; only for HDFS.
        mode: as of `LocalDriver`; only for this machine.
    """

    hook_spec_version = 1
    option_aliases: ClassVar[Mapping[str, str]] = {
        "fileSystemURI": "url",
        "fileSystemProfilePath": "profile_path",
    }
    default_layers = ("retry",)

    def __new__(
        cls,
        url: str = "",
        profile_path: str = "",
        user: str = "",
        config_dir: str = "",
        kerberos_principal: str = "",
        kerberos_keytab: str = "",
        kerberos_cache: str = "",
        replication: int | str | None = None,
        timeout_s: float | str = 60.0,
        mode: str = "0600",
    ) -> Any:
        """The driver."""
        place = _place(url, _read_profiles(profile_path))
        of_hdfs: dict[str, Any] = {
            "user": user,
            "config_dir": config_dir,
            "kerberos_principal": kerberos_principal,
            "kerberos_keytab": kerberos_keytab,
            "kerberos_cache": kerberos_cache,
            "replication": replication,
            "timeout_s": timeout_s,
        }
        if _scheme(place) == "hdfs":
            if mode != "0600":
                raise OptionError("the option 'mode' is for this machine, and the tier is in HDFS")
            from offload_drivers.hdfs import HdfsDriver

            return _as_pulsar(HdfsDriver(url=place, **of_hdfs))
        given = sorted(name for name in of_hdfs if of_hdfs[name] not in ("", None, 60.0))
        if given:
            raise OptionError(
                f"the option {given[0]!r} is for HDFS, and the tier is on this machine",
                found=shown_url(place),
            )
        from offload_drivers.local import LocalDriver
        from offload_drivers.local.paths import root_from_url

        return _as_pulsar(LocalDriver(root_from_url(place), mode=mode))

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that a `file:` or `hdfs:` URL stands for."""
        return {"url": url}


def _as_pulsar(driver: Any) -> Any:
    """The driver, which says whose it is: ledgers are offloaded to it as MapFiles."""
    driver.pulsar_driver = "filesystem"
    return driver


def _place(url: str, profile: Mapping[str, str]) -> str:
    """The URL of the tier's root, under which Pulsar stores."""
    place = url or profile.get(_FILE_SYSTEM, "")
    if _scheme(place) not in ("file", "hdfs"):
        raise OptionError(
            "Pulsar's filesystem offloader is read from file: and hdfs: only",
            expected=f"fileSystemURI, or {_FILE_SYSTEM} in the file of fileSystemProfilePath",
            found=_scheme(place) or "none",
        )
    return place


def _scheme(place: str) -> str:
    return place.partition(":")[0].lower()


def _read_profiles(paths: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in filter(None, (part.strip() for part in paths.split(","))):
        found |= _read_profile(Path(path))
    return found


def _read_profile(path: Path) -> dict[str, str]:
    """The properties of a Hadoop configuration file that are looked at."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PROFILE_BYTES + 1)
        root = ElementTree.fromstring(text)  # noqa: S314 - the operator's own file; expat expands no foreign entity
    except (OSError, ElementTree.ParseError, UnicodeDecodeError) as error:
        raise OptionError(
            "the file of fileSystemProfilePath cannot be read",
            expected="a Hadoop configuration file",
            found=f"{path}: {error}",
        ) from error
    if len(text) > MAX_PROFILE_BYTES or root.tag != "configuration":
        raise OptionError(
            "the file of fileSystemProfilePath is no Hadoop configuration",
            expected=f"<configuration> of at most {MAX_PROFILE_BYTES} bytes",
            found=f"{path}: <{root.tag}>",
        )
    properties = {
        (each.findtext("name") or "").strip(): (each.findtext("value") or "").strip()
        for each in root.iter("property")
    }
    return {name: value for name, value in properties.items() if name == _FILE_SYSTEM and value}
