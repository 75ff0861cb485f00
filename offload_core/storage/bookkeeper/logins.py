"""Logins at a bookie: SASL, by DIGEST-MD5 or GSSAPI (Kerberos), with the mechanisms of `puresasl`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from offload_hooks.errors import AccessDeniedError, MissingExtraError, OptionError
from offload_hooks.option_text import as_choice

Steps = Callable[[bytes | None], bytes | None]
"""Answers what the bookie sent, None at first; None when there is nothing more to send."""


class Login(Protocol):
    """The client's half of a login.

    Attributes:
        plugin: BookKeeper's name of it.
    """

    plugin: str

    def begin(self, host: str) -> Steps:
        """The steps of one login."""


MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_DIGEST_HOST = "bookkeeper"
"""What BookKeeper takes for its own name in DIGEST-MD5, wherever it runs."""


class SaslLogin:
    """SASL, as BookKeeper's `SASLClientProviderFactory` does it.

    Args:
        mechanism: `DIGEST-MD5` or `GSSAPI`.
        username, password: of DIGEST-MD5.
        service: the first part of the bookies' principals, of GSSAPI; its credentials are those of the process.

    Raises:
        OptionError: an option that makes no sense, or a missing one.
        MissingExtraError: `puresasl`, or for Kerberos `pykerberos`, is not installed.
    """

    plugin = "sasl"

    def __init__(
        self, mechanism: str, *, username: str | None, password: str | None, service: str | None
    ) -> None:
        self._mechanism = as_choice("sasl_mechanism", mechanism, MECHANISMS)
        if mechanism == "DIGEST-MD5" and (username is None or password is None):
            raise OptionError("the SASL mechanism DIGEST-MD5 needs 'sasl_username' and 'sasl_password'")
        self._credentials = {"username": username, "password": password}
        self._service = service or "bookkeeper"
        try:
            import puresasl.client
            import puresasl.mechanisms
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "SASL needs the module 'puresasl', which is not installed",
                hint="Install it: pip install 'kazoo[sasl]'",
            ) from error
        if mechanism == "GSSAPI" and not puresasl.mechanisms.have_kerberos:
            raise MissingExtraError(
                "Kerberos needs the module 'kerberos', which is not installed",
                hint="Install it: pip install 'pure-sasl[gssapi]'",
            )
        self._client = puresasl.client.SASLClient

    def begin(self, host: str) -> Steps:
        """See `Login`."""
        is_digest = self._mechanism == "DIGEST-MD5"
        client = self._client(
            host=_DIGEST_HOST if is_digest else host,
            service=self._service,
            mechanism=self._mechanism,
            **(self._credentials if is_digest else {}),
        )

        def step(challenge: bytes | None) -> bytes | None:
            if challenge is not None and client.complete:
                return None
            try:
                answer = client.process(challenge)
            except Exception as error:  # puresasl's errors, and those of the library for Kerberos
                raise AccessDeniedError("a login by SASL fails", found=type(error).__name__) from error
            if client.complete and not answer:
                return None
            return answer or b""

        return step
