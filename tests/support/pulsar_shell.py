"""The real `pulsar-admin`: several commands in one JVM, by the distribution's shell, and what each shows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from servers import install

_COMMAND = re.compile(r"^\[\d+/\d+\] Executing (.+)$", re.MULTILINE)
_LOGGED = re.compile(r"^\d{4}-\d\d-\d\d .*\n", re.MULTILINE)


class PulsarShell:
    """`pulsar-admin` of the distribution that tests run a broker of.

    Args:
        folder: where its settings are written.
        token: what it shows to the service.
        trusted: the certificate that a service with TLS is verified by.
    """

    def __init__(
        self, folder: Path, url: str, *, token: str | None = None, trusted: Path | None = None
    ) -> None:
        self._folder = folder
        settings = {"webServiceUrl": url, "brokerServiceUrl": "pulsar://127.0.0.1:1"}
        if token is not None:
            settings["authPlugin"] = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
            settings["authParams"] = f"token:{token}"
        if trusted is not None:
            settings["tlsTrustCertsFilePath"] = str(trusted)
        self._conf = folder / "client.conf"
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def run(self, commands: Sequence[str]) -> list[str]:
        """What each of these commands of `pulsar-admin` shows; errors are not told apart from answers."""
        script = self._folder / "commands.txt"
        script.write_text("".join(f"admin {command}\n" for command in commands))
        arguments = ["-c", str(self._conf), "-f", str(script), "-np"]
        shown = run_main("org.apache.pulsar.shell.PulsarShell", arguments, self._folder)
        parts = _COMMAND.split(shown)[1:]
        assert parts[::2] == [f"admin {command}" for command in commands], shown
        outputs = [_LOGGED.sub("", text).strip() for text in parts[1::2]]
        return [*outputs[:-1], outputs[-1].removesuffix("Goodbye!").strip()]


def run_main(main: str, arguments: Sequence[str], home: Path) -> str:
    """What a class of the distribution with a `main` prints."""
    java, installed = install.broker()
    quiet = Path(__file__).with_name("servers") / "pulsar" / "log4j2.properties"
    options = ["-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}", f"-Duser.home={home}"]
    done = subprocess.run(
        [str(java), *options, "-cp", f"{installed}/lib/*", main, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
