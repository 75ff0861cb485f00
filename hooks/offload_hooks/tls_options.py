"""Options of TLS, files of certificates and keys, to what Python's `ssl` takes."""

from __future__ import annotations

import ssl

from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_flag


def tls_context(
    ca_bundle: str | None, client_certificate: str | None, client_key: str | None
) -> ssl.SSLContext:
    """Verify servers by the machine's certificates or those of `ca_bundle`, and by their names.

    Raises:
        OptionError: a file that cannot be read or holds something else; a key without its certificate.
    """
    if client_key is not None and client_certificate is None:
        raise OptionError("the option 'client_key' is of no use without 'client_certificate'")
    name = "ca_bundle"
    try:
        context = ssl.create_default_context(cafile=ca_bundle)
        if client_certificate is not None:
            name = "client_certificate"
            # Asked for on the terminal otherwise.
            context.load_cert_chain(client_certificate, client_key, password="")
    except (OSError, ValueError) as error:
        raise OptionError(
            f"the certificates of the option {name!r} cannot be read", found=type(error).__name__
        ) from None
    return context


def tls_context_if(
    tls: object, ca_bundle: str | None, client_certificate: str | None, client_key: str | None
) -> ssl.SSLContext | None:
    """The same where the option `tls` is true, else None; `OptionError` also for certificates without TLS."""
    if as_flag("tls", tls):
        return tls_context(ca_bundle, client_certificate, client_key)
    if ca_bundle or client_certificate or client_key:
        raise OptionError("certificates are of no use without TLS", hint="Set the option 'tls' to true.")
    return None
