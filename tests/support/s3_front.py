"""For fronts before S3 servers: answers that refuse as S3 does, and requests that are signed anew."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from http_front import Answer, Request
from servers.versitygw import Versitygw

_NOT_SIGNED_ANEW = {"authorization", "x-amz-security-token", "x-amz-date", "expect", "connection"}


def refusal(status: int, code: str, message: str = "", **headers: str) -> Answer:
    """An answer of S3 that refuses."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=body, headers={"Content-Type": "application/xml", **named})


def signed_anew(request: Request, server: Versitygw, **parameters: object) -> Request:
    """The request with more parameters, signed by the server's root user."""
    named = {name.replace("_", "-"): value for name, value in parameters.items()}
    more = ("&" if "?" in request.target else "?") + urlencode(named) if named else ""
    headers = {name: value for name, value in request.headers.items() if name not in _NOT_SIGNED_ANEW}
    url = f"http://{headers['host']}{request.target}{more}"
    again = AWSRequest(request.method, url, headers, data=request.body)
    credentials = Credentials(server.root.access_key, server.root.secret_key)
    S3SigV4Auth(credentials, "s3", server.region).add_auth(again)
    signed = {name.lower(): value for name, value in again.headers.items()}
    return replace(request, target=request.target + more, headers=signed)
