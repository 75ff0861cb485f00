"""Logins at a bookie: SASL, by DIGEST-MD5 or GSSAPI (Kerberos), with the mechanisms of `puresasl`."""

from __future__ import annotations

from collections.abc import Callable

from offload_hooks.errors import AccessDeniedError, MissingExtraError

Steps = Callable[[bytes | None], bytes | None]
"""Answers the bookie's step, None at first; None when there is nothing more to send."""

_DIGEST_HOST = "bookkeeper"
"""BookKeeper's own name in DIGEST-MD5, on every host."""


class SaslLogin:
    """SASL, as BookKeeper's `SASLClientProviderFactory` does it; options as of `sasl_options`.

    Args:
        mechanism: `DIGEST-MD5` or `GSSAPI`.
        username, password: of DIGEST-MD5.
        service: the first part of the bookies' principals, of GSSAPI; its credentials are those of the process.

    Attributes:
        plugin: BookKeeper's name of this kind of login.

    Raises:
        MissingExtraError: for Kerberos, `kerberos` is not installed.
    """

    plugin = "sasl"

    def __init__(
        self,
        mechanism: str,
        *,
        username: str | None = None,
        password: str | None = None,
        service: str = "bookkeeper",
    ) -> None:
        import puresasl.client
        import puresasl.mechanisms

        if mechanism == "GSSAPI" and not puresasl.mechanisms.have_kerberos:
            raise MissingExtraError(
                "Kerberos needs the module 'kerberos', which is not installed",
                hint="Install it: pip install 'pure-sasl[gssapi]'",
            )
        self._is_digest = mechanism == "DIGEST-MD5"
        self._mechanism = mechanism
        self._credentials = {"username": username, "password": password} if self._is_digest else {}
        self._service = service
        self._client = puresasl.client.SASLClient

    def begin(self, host: str) -> Steps:
        """The steps of one login."""
        client = self._client(
            host=_DIGEST_HOST if self._is_digest else host,
            service=self._service,
            mechanism=self._mechanism,
            **self._credentials,
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
