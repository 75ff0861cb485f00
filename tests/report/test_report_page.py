"""The page in a real browser: what it shows, asks for, and how it is used without a mouse and in the dark."""

import json
import re
from datetime import UTC, datetime, timedelta

import page_looks
import pytest
from entries import LedgerPart, entry, ledger_metadata, pip17_object, streaming_object
from tiers import Names, lay_out

from offload_core.maintenance.inventory.report_contents import gather
from offload_core.maintenance.inventory.report_page import report_page
from offload_core.maintenance.verify import Verification
from pulsar_offload import open_tier

pytestmark = pytest.mark.sampled(6)

HOSTILE = (
    "<script>document.title='got in'</script>",
    "</script><img src=x onerror=document.title='got in'>",
    "<b>bold</b><a href='javascript:alert(1)'>a</a>%{x}<extra>$x$",
    '"onmouseover="document.title=1',
    "{{data}}{{program}}",
)
PAYLOADS = [entry(b"%05d" % i * 100) for i in range(60)]
BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """Topics with names that mean harm, one ordinary, a segment, and an object without its index."""
    root = tmp_path_factory.mktemp("tier")
    for i, name in enumerate(("orders", *HOSTILE)):
        names = Names(managed_ledger=f"acme/cold/persistent/{name}".replace("%", "%25"))
        for month in range(3):
            payloads, at = PAYLOADS[: 60 - 8 * i], BEGIN + timedelta(days=31 * month + i)
            metadata = ledger_metadata(payloads, ctime_ms=int(at.timestamp() * 1000))
            written = pip17_object(payloads, ledger_id=10 * i + month, metadata=metadata)
            lay_out(root, written, attempt=10 * i + month, names=names)
    segment = streaming_object([LedgerPart(ledger_id=each, blocks=[PAYLOADS]) for each in (90, 91)])
    lay_out(root, segment, attempt=90)
    lay_out(root, pip17_object(PAYLOADS, ledger_id=95), attempt=95, parts=("data",))
    return root


@pytest.fixture(scope="module")
def page(tier, tmp_path_factory):
    with open_tier(tier) as reader:
        data = gather(reader.catalogue(), f"file://{tier}", findings=Verification(reader.store), top=5)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(data).html)
    return path


@pytest.fixture
def browser(chromium, page):
    chromium.prefer("light")
    chromium.resize(1200, 900)
    chromium.open(page.as_uri())
    return chromium


def texts(browser, selector):
    """The texts of all elements that it selects."""
    return browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


CHARTS = ["problems", "topics", "times", "growth", "map", "sizes", "ages"]


def test_it_shows_all_charts_and_asks_nobody(browser, page):
    assert browser.errors == []
    asked = {url for url in browser.requests if not url.startswith(("data:", "blob:"))}
    assert asked == {page.as_uri()}
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.chart')].map(e => [e.id, !!e.querySelector('.mark[data-tip]')])"
    )
    assert drawn == [[f"chart-{name}", True] for name in CHARTS]
    widths = (
        "[...document.querySelectorAll('#chart-map .bar .mark')].map(e => e.getBoundingClientRect().width)"
    )
    assert len([width for width in browser.evaluate(widths) if width > 5]) >= 3 * 5


def test_the_page_looks_right_at_every_width_light_and_dark(browser):
    assert page_looks.flaws(browser, "report") == []
    assert browser.errors == []


def test_a_flaw_of_a_page_is_found(browser):
    """The one above would see it."""
    browser.evaluate("document.querySelector('#chart-topics .track').style.marginLeft = '-30rem'")
    browser.evaluate("document.querySelector('#theme').textContent = ''")
    found = page_looks.flaws(browser, "flawed")
    assert {each.partition(": ")[2].partition(":")[0] for each in found} >= {"chart-topics", "button-name"}


def test_problems_come_first_and_are_red(browser):
    assert texts(browser, "main h2")[:2] == ["Overview", "Problems"]
    colors = browser.evaluate("""[
        getComputedStyle(document.querySelector('.totals li b')).color,
        getComputedStyle(document.querySelector('#chart-problems .bar .mark')).backgroundColor]""")
    assert colors == ["rgb(163, 22, 27)", "rgb(192, 33, 38)"]
    number, name = texts(browser, ".totals li:first-child *")
    assert (number, name) == ("1", "finding")


def test_a_lost_index_leaves_the_bytes_of_its_object_in_the_charts(browser):
    (told,) = browser.evaluate(
        "[...document.querySelectorAll('#chart-topics .mark.problem')].filter(e => e.dataset.tip).map("
        "e => [e.dataset.tip, e.getBoundingClientRect().width])"
    )
    assert told[0].startswith("acme/cold/orders, in the tier, cannot be read: 32.6 kB")
    assert told[1] > 20


def test_axes_and_tables_have_the_same_units(browser):
    for selector in ("#chart-topics .ticks span", "#chart-times .line span", "#chart-growth .line span"):
        ticks = texts(browser, selector)
        assert ticks[0] == "0 bytes"
        assert all(re.fullmatch(r"[0-9]+(\.[0-9])? (bytes|kB|MB)", tick) for tick in ticks), ticks
    rows = dict(
        zip(texts(browser, "#chart-topics .name"), texts(browser, "#chart-topics .value"), strict=True)
    )
    assert rows["acme/cold/orders"].endswith("kB")


def test_counts_have_whole_numbers(browser):
    for name in ("problems", "sizes", "ages"):
        ticks = texts(browser, f"#chart-{name} .ticks span")
        assert all(tick.isdecimal() for tick in ticks), ticks
        assert len(set(ticks)) == len(ticks)


def test_where_one_topic_hides_the_rest_axes_are_logarithmic(chromium, tmp_path):
    for i in range(4):
        names = Names(managed_ledger=f"acme/cold/persistent/t{i}")
        payloads = [entry(bytes(10_000_000 if i == 0 else 2_000 * i))]
        metadata = ledger_metadata(payloads, ctime_ms=int((BEGIN + timedelta(days=i)).timestamp() * 1000))
        lay_out(tmp_path, pip17_object(payloads, ledger_id=i, metadata=metadata), attempt=i, names=names)
    with open_tier(tmp_path) as tier:
        page = report_page(gather(tier.catalogue(), "here"))
    (tmp_path / "report.html").write_text(page.html)
    chromium.prefer("light")
    chromium.resize(1200, 900)
    chromium.open((tmp_path / "report.html").as_uri())
    for name in ("topics", "times", "map"):
        assert texts(chromium, f"#chart-{name} .note")[0].startswith("The axis is logarithmic")
    widths = chromium.evaluate(
        "[...document.querySelectorAll('#chart-topics .bar')].map(e => e.getBoundingClientRect().width)"
    )
    assert min(widths) > 20
    ticks = texts(chromium, "#chart-topics .ticks span")
    assert ticks[-1] == "100 MB"
    assert set(ticks) <= {"100 bytes", "1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"}
    assert page_looks.flaws(chromium, "report-logarithmic") == []


def test_arrow_keys_tell_what_each_mark_stands_for(browser):
    browser.evaluate("document.querySelector('#chart-topics').focus()")
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        browser.press(key)
        told.append(browser.evaluate("document.querySelector('#tip').textContent"))
        browser.evaluate("document.body.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
    assert told[0] == told[2] != told[1]
    assert told[0].endswith(" kB")
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('#tip').hidden")


def test_each_chart_has_its_figures_in_a_table(browser):
    tables = browser.evaluate("[...document.querySelectorAll('table')].map(e => e.id)")
    assert tables == [f"table-{name}" for name in CHARTS if name != "growth"]
    headings = browser.evaluate(
        "[...document.querySelectorAll('table')].every(e => e.caption && e.querySelector('th[scope=col]'))"
    )
    assert headings
    rows = texts(browser, "#table-topics tbody td:first-child")
    assert len(rows) == 6
    assert rows[-1] == "1 more topic"
    assert "acme/cold/orders" in rows


def test_what_is_wrong_is_shown_with_its_place(browser):
    shown = texts(browser, "#table-problems tbody td")
    assert shown[:2] == ["error", "object.no-index"]
    assert "ledger-95" in shown[2]
    color = browser.evaluate("getComputedStyle(document.querySelector('#table-problems td.error')).color")
    assert color == "rgb(163, 22, 27)"


def test_names_that_mean_harm_are_text(browser):
    assert browser.evaluate("document.title").startswith("Offloaded topics: file://")
    shown = {row.removeprefix("acme/cold/") for row in texts(browser, "#table-map tbody td:first-child")}
    assert len(shown & set(HOSTILE)) >= 3
    assert browser.evaluate("document.querySelectorAll('main img, main script, .chart a[href]').length") == 0
    labels = texts(browser, "#chart-topics .name")
    assert any(label.endswith(">a</a>%{x}<extra>$x$") for label in labels), labels
    assert browser.errors == []


def test_the_keyboard_reaches_all(browser):
    browser.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(60):
        browser.press("Tab")
        reached.append(
            browser.evaluate(
                "(({id, tagName, textContent}) => id || `${tagName} ${textContent}`)(document.activeElement)"
            )
        )
        if reached[-1] in reached[:-1]:
            break
    wanted = browser.evaluate(
        "[...document.querySelectorAll('a[href], button, [tabindex=\"0\"]')]"
        ".map(e => e.id || `${e.tagName} ${e.textContent}`)"
    )
    assert [each for each in wanted if each not in reached] == []
    assert reached[0] == "A Skip to the content"
    assert {f"chart-{name}" for name in CHARTS} <= set(reached)
    assert {"theme", "table-topics-around", "table-problems-around"} <= set(reached)
    described = browser.evaluate(
        "[...document.querySelectorAll('[tabindex=\"0\"]')].every(e => e.getAttribute('aria-label') && e.role)"
    )
    assert described


def test_enter_on_the_skip_link_goes_to_the_content(browser):
    browser.evaluate("document.querySelector('.skip').focus()")
    browser.press("Enter")
    browser.wait_for("document.activeElement.id === 'main'")


COLORS = """(() => {
    const ground = getComputedStyle(document.body).backgroundColor;
    const mark = document.querySelector('#chart-topics .mark.cold').computedStyleMap().get('background-color');
    const ink = getComputedStyle(document.body).color;
    return [ground, mark.toString(), ink, document.querySelector('#theme').ariaPressed];
})()"""


def test_dark_by_the_systems_wish_and_by_the_button(browser):
    light = browser.evaluate(COLORS)
    assert (light[0], light[3]) == ("rgb(255, 255, 255)", "false")
    browser.prefer("dark")
    browser.wait_for(f"JSON.stringify({COLORS}) !== {json.dumps(json.dumps(light, separators=(',', ':')))}")
    browser.wait_for("document.querySelector('#theme').ariaPressed === 'true'")
    dark = browser.evaluate(COLORS)
    assert dark[:2] == ["rgb(20, 23, 28)", "rgb(74, 163, 223)"]
    browser.evaluate("document.querySelector('#theme').focus()")
    browser.press(" ")
    browser.wait_for("document.querySelector('#theme').ariaPressed === 'false'")
    assert browser.evaluate(COLORS) == light
    assert browser.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_can_be_told_from_their_ground(browser, scheme):
    browser.prefer(scheme)
    texts, marks = browser.evaluate("""(() => {
        const probe = document.body.appendChild(document.createElement('i'));
        const light = (name) => {
            probe.style.color = `var(--${name})`;
            const [r, g, b] = getComputedStyle(probe).color.match(/[0-9]+/g)
                .map((x) => x / 255)
                .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const on = (names, grounds) => names.flatMap((name) => grounds.map((each) => ratio(light(name), light(each))));
        const series = [...Array(9).keys()].map((each) => `series-${each}`);
        return [on(['ink', 'quiet', 'link', 'error', 'warning', 'fine'], ['ground', 'raised']),
            on(['cold', 'both', 'hot', 'problem', ...series], ['ground'])];
    })()""")
    assert min(texts) >= 4.5
    assert min(marks) >= 3


def test_an_empty_tier_has_a_page_too(chromium, tmp_path):
    with open_tier(tmp_path) as tier:
        page = report_page(gather(tier.catalogue(), "here"))
    path = tmp_path / "report.html"
    path.write_text(page.html)
    chromium.open(path.as_uri())
    assert chromium.errors == []
    said = chromium.evaluate("document.querySelector('#problems p').textContent")
    assert said == "None is seen. offload verify looks closer."
    assert texts(chromium, "main h2") == ["Overview", "Problems"]
    assert page_looks.flaws(chromium, "report-empty") == []


def test_nothing_runs_that_the_page_did_not_come_with(browser):
    """What would get in all the same, the policy stops."""
    browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=document.title=1>')")
    browser.evaluate(
        "{ const s = document.createElement('script'); s.text = 'document.title = 2'; document.body.append(s) }"
    )
    browser.evaluate("fetch('http://127.0.0.1:9/').catch(() => { window.refused = true })")
    browser.wait_for("window.refused")
    assert browser.evaluate("document.title").startswith("Offloaded topics")
    assert len([error for error in browser.errors if "Content Security Policy" in error]) >= 3
