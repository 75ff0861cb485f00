"""A broker's admin REST on a real socket: golden answers, or those of a test."""

import json
import traceback
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest
from golden import BROKER
from network.fronts import Answer, Front, json_answer

from offload_core.storage.pulsar_admin import Credentials, PulsarAdminClient, parse_servers
from offload_hooks.tls_options import tls_context

ADMIN = "/admin/v2"


def reason(status, text):
    """An error as Pulsar answers it."""
    return json_answer({"reason": text}, status)


class AdminRest(Front):
    """A server with these answers by path, which may be changed at any time; else Pulsar's answer for a missing page.

    With `tls`, a certificate and its key.
    """

    def __init__(self, answers=None, **more):
        super().__init__(rule=self._answer, **more)
        self.answers = dict(answers or {})

    @property
    def asked(self):
        """The paths that were asked for, in order."""
        return [_path(request) for request in self.requests]

    def _answer(self, request):
        answer = self.answers.get(_path(request))
        if answer is None:
            return reason(404, "Topic not found")
        return answer if isinstance(answer, Answer) else json_answer(answer)


def _path(request):
    """With its %-escapes."""
    return urlsplit(request.target).path.removeprefix(ADMIN)


def ledger(ledger_id, entries=None, uuid=None):
    """A ledger as `internal-info` has it; open without entries."""
    found = {"ledgerId": ledger_id, "timestamp": 1795215804532, "isOffloaded": uuid is not None}
    if entries is not None:
        found |= {"entries": entries, "size": 10 * entries}
    return found if uuid is None else found | {"offloadedContextUuid": uuid}


def topic_answers(topic, *ledgers, offloaded=()):
    """The two answers about a topic `tenant/namespace/name`, of whose ledgers these are `offloaded`."""
    stats = [
        {
            "ledgerId": each["ledgerId"],
            "entries": each.get("entries", 0),
            "offloaded": each["ledgerId"] in offloaded,
        }
        for each in ledgers
    ]
    return {
        f"/persistent/{topic}/internalStats": {"currentLedgerEntries": 0, "ledgers": stats},
        f"/persistent/{topic}/internal-info": {"version": 3, "ledgers": list(ledgers), "cursors": {}},
    }


def namespace_answers(*topics):
    """The listings of tenants, namespaces and these topics, `tenant/namespace/name`."""
    answers = {"/tenants": []}
    for topic in topics:
        tenant, namespace, _ = topic.split("/", 2)
        below = answers.setdefault(f"/namespaces/{tenant}", [])
        if tenant not in answers["/tenants"]:
            answers["/tenants"].append(tenant)
        if f"{tenant}/{namespace}" not in below:
            below.append(f"{tenant}/{namespace}")
        answers.setdefault(f"/persistent/{tenant}/{namespace}", []).append(f"persistent://{topic}")
    return answers


def golden_answers(folder="s3"):
    """The answers of a broker about the golden topics `acme/cold/…` of an offload driver."""
    topics = sorted((BROKER.parent / folder / "topics").iterdir())
    answers = namespace_answers(*(f"acme/cold/{topic.name}" for topic in topics))
    for topic in topics:
        for name in ("internalStats", "internal-info"):
            answers[f"/persistent/acme/cold/{topic.name}/{name}"] = json.loads(
                (topic / f"{name}.json").read_text()
            )
    return answers


# --- A client of an admin REST, as tests call it.


TOKEN = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"  # no server knows it


PATH = "/admin/v2/tenants"


def client_of(url, *, token=TOKEN, ca_bundle=None, timeout_s=30, attempts=1):
    tls = tls_context(str(ca_bundle), None, None) if ca_bundle else None
    credentials = Credentials(token=token, tls=tls)
    return closing(PulsarAdminClient(parse_servers(url), credentials, timeout_s=timeout_s, attempts=attempts))


def asked(url, **options):
    with client_of(url, **options) as client:
        return client.get_json(PATH)


# --- Errors that hide a secret.


@contextmanager
def raises_without(secret, kind, match=None):
    """Exactly this kind of error, without the secret in anything that a log would show."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert type(caught.value) is kind
    shown = (
        "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.__cause__)
    )
    assert secret not in shown
