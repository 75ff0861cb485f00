"""`/ui`: the page in a real browser, what it asks the service for, and who is told."""

from datetime import UTC, datetime

import page_looks
import pytest
from service import Service, TenantService, bearer, offloading, owner
from tiers import uuid_of
from waiting import wait_for

from offload_core.interfaces.service.app import MOST_TOPICS
from offload_core.metadata.records import DriverMetadata, ManagedLedgerInfo
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, begin_attempt
from offload_core.storage.clock import system_now_ms
from offload_core.writing.managed_ledger import RolloverPolicy, open_managed_ledger

pytestmark = pytest.mark.long

HOSTILE = "<img src=x onerror=document.title='got in'>"
ROWS = "[...document.querySelectorAll('#table-status tbody tr')].map(e => [...e.children].map(c => c.textContent))"
SAID = "document.querySelector('#said').textContent"


def write(service, folder, *topics):
    """Three entries in two ledgers each, the first of which is sealed."""
    rollover = RolloverPolicy(max_entries=2, min_age_s=0)
    with owner(service.metadata, folder) as environment:
        for name in topics:
            with open_managed_ledger(environment, f"acme/n/persistent/{name}", rollover=rollover) as topic:
                for i in range(3):
                    topic.add_entry(b"%d" % i * 100)


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path, offloading(tmp_path, service="upkeep_interval_s = 3600")) as running:
        yield running


def test_the_page_shows_offloads_as_they_go(chromium, service, tmp_path):
    write(service, tmp_path, "orders", "%3Cimg+src%3Dx+onerror%3Ddocument.title%3D%27got+in%27%3E")
    chromium.prefer("light")
    chromium.resize(1200, 900)
    chromium.open(f"{service.url}/ui")
    chromium.wait_for(f"{ROWS}.length === 2")
    rows = {row[0]: row for row in chromium.evaluate(ROWS)}
    assert rows["acme/n/orders"][1:5] == ["not offloaded", "", "–", "0 of 2"]
    assert f"acme/n/{HOSTILE}" in rows
    message = {"ledgerId": 2**62, "entryId": -1, "partitionIndex": -1}
    assert service.ask("PUT", "/admin/v2/persistent/acme/n/orders/offload", message).status == 204
    chromium.wait_for(
        f"{ROWS}.some(row => row[0] === 'acme/n/orders' && row[1] === 'offloaded' && row[4] === '2 of 2')"
    )
    assert chromium.evaluate("document.querySelectorAll('#chart-status .mark.cold[data-tip]').length") == 1
    assert chromium.evaluate("document.title") == "Offloads"
    assert chromium.evaluate("!document.querySelector('#token') && document.querySelector('nav').hidden")
    assert page_looks.flaws(chromium, "service") == []
    assert chromium.errors == []
    assert {url.removeprefix(service.url) for url in chromium.requests if not url.startswith("data:")} == {
        "/ui",
        "/ui/status",
    }


def test_the_root_leads_to_the_page(chromium, service):
    answer = service.ask("GET", "/")
    assert (answer.status, answer.headers["location"]) == (307, "ui")
    chromium.open(service.url)
    assert chromium.evaluate("location.pathname") == "/ui"


def test_what_another_process_offloads_is_told(chromium, service, offload, tmp_path):
    """The command line changes the same records."""
    write(service, tmp_path, "orders", "clicks")
    (before, _) = service.ask("GET", "/ui/status").json["topics"]
    assert (before["status"], before["last"], before["why"]) == ("not offloaded", None, "")
    done = offload("topics", "offload", "acme/n/orders", "--config", service.config)
    assert done.code == 0, done.err
    chromium.open(f"{service.url}/ui")
    chromium.wait_for(f"{ROWS}.some(row => row[1] === 'offloaded')")
    other, row = sorted(chromium.evaluate(ROWS))
    by_another = "offloaded by another process, or before this service started"
    assert row[:3] == ["acme/n/orders", "offloaded", by_another]
    assert datetime.fromisoformat(row[3]) <= datetime.now(UTC).replace(tzinfo=None)
    assert row[4] == "2 of 2"
    assert other[:5] == ["acme/n/clicks", "not offloaded", "", "–", "0 of 2"]


def test_an_offload_of_another_process_is_told_while_it_runs(service, tmp_path):
    write(service, tmp_path, "orders")
    lease = AttemptLease(
        holder=AttemptHolder(machine=1, process=1, started=1), until_ms=system_now_ms() + 600_000
    )
    place = DriverMetadata(name="local", properties=(("root", str(tmp_path / "cold")),))
    with owner(service.metadata, tmp_path) as environment:
        name = "acme/n/persistent/orders"
        first = environment.records.require(name).info.in_order[0].ledger_id
        environment.records.update(
            name, lambda info: begin_attempt(info, first, uuid_of(1), place, lease=lease)
        )
    (row,) = service.ask("GET", "/ui/status").json["topics"]
    assert (row["status"], row["offloaded"]) == ("offloading, by another process", 0)


def test_a_failure_is_told_with_its_reason(service, tmp_path):
    write(service, tmp_path, "orders")
    (tmp_path / "cold").write_text("a file where the tier's folder should be")
    message = {"ledgerId": 2**62, "entryId": -1, "partitionIndex": -1}
    service.ask("PUT", "/admin/v2/persistent/acme/n/orders/offload", message)

    def row():
        (told,) = service.ask("GET", "/ui/status").json["topics"]
        return told

    wait_for(lambda: row()["status"] == "failed")
    assert row()["why"]


def test_the_page_lets_nothing_else_in_and_nobody_from_elsewhere(service):
    answer = service.ask("GET", "/ui")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert all(source.startswith("'sha256-") for source in policy["script-src"].split())
    assert (answer.headers["x-frame-options"], answer.headers["cache-control"]) == ("DENY", "no-store")


def test_many_topics_are_told_in_part(service, tmp_path):
    with owner(service.metadata, tmp_path) as environment:
        for i in range(MOST_TOPICS + 3):
            environment.records.write(f"acme/n/persistent/t{i:03}", ManagedLedgerInfo(ledgers=()), None)
    told = service.ask("GET", "/ui/status").json
    assert (told["count"], len(told["topics"])) == (MOST_TOPICS + 3, MOST_TOPICS)
    assert service.ask("GET", "/ui/status?namespace=acme%2Fother").json == {"count": 0, "topics": []}
    refused = service.ask("GET", "/ui/status?namespace=acme")
    assert (refused.status, "no namespace" in refused.json["reason"]) == (412, True)
    for path in ("/ui", "/ui/status"):
        assert service.ask("GET", path, headers={"Host": "evil.example"}).status == 403


def test_with_tokens_the_page_is_empty_until_one_is_given(chromium, tmp_path):
    with TenantService(tmp_path) as guarded:
        write(guarded, tmp_path, "orders")
        assert "orders" not in guarded.ask("GET", "/ui").text.partition('id="data">')[2][:200]
        assert guarded.ask("GET", "/ui/status").status == 401
        assert guarded.ask("GET", "/ui/status", headers=bearer("stranger")).status == 403
        chromium.open(f"{guarded.url}/ui")
        chromium.wait_for(f"{SAID} === 'This service needs a token.'")
        assert chromium.errors == []
        assert guarded.ask("GET", "/").status == 307
        assert page_looks.flaws(chromium, "service-token") == []
        chromium.evaluate(
            "document.querySelector('#token').value = 'x'; document.querySelector('#token').focus()"
        )
        chromium.press("Enter")
        chromium.wait_for(f"{SAID}.startsWith('Refused: ')")
        token = bearer("admin")["Authorization"].removeprefix("Bearer ")
        chromium.evaluate(
            f"document.querySelector('#token').value = '{token}'; document.querySelector('#token').focus()"
        )
        chromium.press("Enter")
        chromium.wait_for(f"{ROWS}.length === 1")
        assert chromium.evaluate(SAID) == "1 topic; 0 offloading, 0 failed"
