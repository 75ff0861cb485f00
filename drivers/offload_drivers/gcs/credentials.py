"""Credentials of Google Cloud from a driver's options, by google-auth; nothing is asked of the store.

Without any option these are Application Default Credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names
(a service account's key, or a configuration for workload identity federation), what `gcloud auth
application-default login` left, the metadata server of Google's machines. `AccessDeniedError` when there are none.
"""

from __future__ import annotations

from datetime import timezone
from pathlib import Path
from typing import Any

import google.auth
import google.auth.credentials
import google.auth.exceptions
import google.auth.impersonated_credentials
import google.oauth2.credentials
import google.oauth2.service_account

from offload_drivers.credential_calls import CredentialOption, fetch
from offload_drivers.gcs.options import GcsOptions
from offload_drivers.server_options import check_private
from offload_hooks.errors import AccessDeniedError, OptionError
from offload_hooks.json_text import read_json

STORAGE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
"""What tokens are asked for: objects, but not the rights on them."""


def make_credentials(options: GcsOptions, transport: Any) -> Any:
    """The credentials that the options ask for; None for anonymous access.

    Args:
        transport: google-auth's request callable, by which metadata and token servers are reached.
    """
    if options.anonymous:
        return None
    own = _own(options, transport)
    if not options.impersonate_service_account:
        return own
    return google.auth.impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
        source_credentials=own,
        target_principal=options.impersonate_service_account,
        target_scopes=[STORAGE_SCOPE],
    )


def _own(options: GcsOptions, transport: Any) -> Any:
    if options.token:
        return google.oauth2.credentials.Credentials(options.token)  # type: ignore[no-untyped-call]
    if options.credentials:
        return _CalledCredentials(options.credentials)
    if options.service_account_json:
        return _service_account("service_account_json", options.service_account_json)
    if options.service_account_file:
        try:
            text = Path(options.service_account_file).read_text()
        except (OSError, ValueError) as error:
            raise OptionError(
                "the file of the option 'service_account_file' cannot be read",
                found=options.service_account_file,
            ) from error
        return _service_account("service_account_file", text)
    try:
        # The scope comes later: with one, federated credentials ask Google for the name of their project.
        credentials, _ = google.auth.default(request=transport)
    except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
        raise AccessDeniedError(
            "no usable credentials of Google Cloud are found",
            hint="Set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or give "
            "{storage.service_account_file}, {storage.token} or {storage.anonymous=true}.",
        ) from error
    return google.auth.credentials.with_scopes_if_required(credentials, [STORAGE_SCOPE])  # type: ignore[no-untyped-call]


class _CalledCredentials(google.auth.credentials.Credentials):
    """The tokens that a callable of the user's returns."""

    def __init__(self, call: CredentialOption) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._call = call

    def refresh(self, request: object) -> None:
        """See google-auth, which has times in UTC without a zone."""
        del request
        found = fetch(self._call, "token")
        self.token = found.texts["token"]
        self.expiry = found.expires_at.astimezone(timezone.utc).replace(tzinfo=None)


def _service_account(option: str, text: str) -> Any:
    # What these functions raise may quote the key, so nothing of it becomes a cause.
    try:
        info = read_json(text, "a key of a service account")
        kind: Any = google.oauth2.service_account.Credentials
        credentials = kind.from_service_account_info(info, scopes=[STORAGE_SCOPE])
    except (google.auth.exceptions.GoogleAuthError, ValueError, TypeError, KeyError, AttributeError):
        credentials = None
    if credentials is None:
        raise OptionError(
            f"the option {option!r} holds no key of a service account",
            hint="Other kinds of credential files are taken from GOOGLE_APPLICATION_CREDENTIALS.",
        )
    check_private(str(info["token_uri"]), "tokens of Google Cloud are asked for")
    return credentials
