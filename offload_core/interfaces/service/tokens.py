"""Tokens (JWT) as Pulsar's: who asks, and whether it may.

Keys are those that `pulsar tokens` makes: a secret key as raw bytes, a public key as DER (SubjectPublicKeyInfo) or PEM.
Source: Pulsar's "Authentication using tokens based on JSON Web Tokens"; docs/service.md.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from offload_core.writing.configuration import TokenSettings
from offload_hooks.errors import AccessDeniedError, OptionError

_SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
_PUBLIC_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_MIN_SECRET_BYTES = 32
_MAX_TOKEN_CHARACTERS = 8 << 10


class NoTokenError(AccessDeniedError):
    """A request without a token, or with one that is not good."""


@dataclass(frozen=True, slots=True)
class _Key:
    key: Any
    algorithms: tuple[str, ...]

    def __repr__(self) -> str:
        return "<_Key>"


class Tokens:
    """Judges tokens by one key.

    Raises:
        OptionError: no key or two, one that is none, an unknown algorithm, or no role that may do anything.
    """

    def __init__(self, settings: TokenSettings) -> None:
        if not settings.superuser_roles:
            raise OptionError(
                "with tokens some role must have permissions", expected="service.tokens.superuser_roles"
            )
        self._settings = settings
        self._key = _key(settings)

    def check(self, authorization: str | None) -> str:
        """The role of a request's header `Authorization`.

        Raises:
            NoTokenError: no token, a wrong signature, an expired one, no role.
            AccessDeniedError: the role may do nothing at all here.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NoTokenError("a token is needed", expected="the header Authorization: Bearer TOKEN")
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise NoTokenError(
                "the token is too long", expected=f"at most {_MAX_TOKEN_CHARACTERS} characters"
            )
        audience = self._settings.audience
        try:
            claims = jwt.decode(
                token.strip(),
                self._key.key,
                algorithms=list(self._key.algorithms),
                options={"verify_aud": False, "verify_sub": False, "verify_iat": False},
            )
        except Exception as error:  # the error's text may quote the token
            raise NoTokenError("the token is not good", found=type(error).__name__) from None
        if audience is not None and audience not in _several(claims.get(self._settings.audience_claim)):
            raise NoTokenError("the token is for another audience")
        role = claims.get(self._settings.role_claim)
        if isinstance(role, list):
            role = role[0] if role else None
        if not isinstance(role, str) or not role:
            raise NoTokenError("the token names no role", expected=f"the claim {self._settings.role_claim}")
        if role not in self._settings.superuser_roles.union(*self._settings.tenant_admin_roles.values()):
            raise AccessDeniedError("the token's role may do nothing here", found=repr(role))
        return role

    def is_superuser(self, role: str) -> bool:
        """True if a role may do everything."""
        return role in self._settings.superuser_roles

    def check_may(self, role: str, tenant: str | None) -> None:
        """Refuse what a role may not: all but a superuser's, outside of the tenants that it is an admin of.

        Args:
            tenant: of whom the request is; None: of all.

        Raises:
            AccessDeniedError: the role may not.
        """
        if self.is_superuser(role):
            return
        if tenant is None or role not in self._settings.tenant_admin_roles.get(tenant, ()):
            raise AccessDeniedError("the token's role may not do this", found=repr(role))


def has_tokens(settings: TokenSettings) -> bool:
    """True if requests must have a token.

    Raises:
        OptionError: issuers or audiences of tokens are set, and no key is.
    """
    if settings.secret_key is not None or settings.public_key is not None:
        return True
    if settings != TokenSettings():
        raise OptionError(
            "tokens need a key", expected="service.tokens.secret_key or service.tokens.public_key"
        )
    return False


def _several(claim: Any) -> list[Any]:
    return claim if isinstance(claim, list) else [claim]


def _key(settings: TokenSettings) -> _Key:
    if (settings.secret_key is None) == (settings.public_key is None):
        raise OptionError("tokens need one key", expected="either tokens.secret_key or tokens.public_key")
    if settings.secret_key is not None:
        secret = read_key(settings.secret_key.get_secret_value(), "service.tokens.secret_key")
        if len(secret) < _MIN_SECRET_BYTES:
            raise OptionError(
                "service.tokens.secret_key is too short",
                expected=f"{_MIN_SECRET_BYTES} bytes or more",
                found=len(secret),
            )
        return _Key(secret, _SECRET_ALGORITHMS)
    algorithm = settings.public_algorithm
    if algorithm not in _PUBLIC_ALGORITHMS:
        raise OptionError(
            "there is no such algorithm of public keys",
            expected=", ".join(_PUBLIC_ALGORITHMS),
            found=algorithm,
        )
    data = read_key(settings.public_key or "", "service.tokens.public_key")
    try:
        load = load_pem_public_key if data.startswith(b"-----") else load_der_public_key
        key = load(data)
        jwt.get_algorithm_by_name(algorithm).prepare_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm, jwt.PyJWTError):
        raise OptionError(f"service.tokens.public_key is no public key for {algorithm}") from None
    return _Key(key, (algorithm,))


def read_key(given: str, name: str) -> bytes:
    """A key's bytes: of a path, a `file:` or `data:` URL, or base64, as Pulsar takes them.

    Raises:
        OptionError: it cannot be read. The text does not show it.
    """
    try:
        if given.startswith("data:"):
            kind, comma, data = given.partition(",")
            if not comma:
                raise OptionError(f"{name} is no data URL", expected="data:;base64,…")
            raw = unquote_to_bytes(data)
            return base64.b64decode(raw, validate=True) if kind.endswith(";base64") else raw
        if given.startswith("file:"):
            return Path(unquote(urlsplit(given).path)).read_bytes()
        if len(given) < 1024 and Path(given).is_file():
            return Path(given).read_bytes()
        return base64.b64decode(given, validate=True)
    except OSError as error:
        raise OptionError(f"{name} cannot be read", found=error.strerror) from None
    except (binascii.Error, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{name} is neither a file nor base64") from None
