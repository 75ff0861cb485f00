"""A page at three widths, light and dark: nothing is cut or overlaps, axe-core finds nothing, and a picture is kept.

The pictures of a run are in `.artefacts/`, for people to look at.
"""

from __future__ import annotations

from pathlib import Path

from chromium import Chromium
from servers import install

ARTEFACTS = Path(__file__).resolve().parents[2] / ".artefacts"
WIDTHS = (360, 800, 1400)
SCHEMES = ("light", "dark")
_HEIGHT = 900
_MOST_HEIGHT = 16_000

# What is wider than the page, stands out of its chart, or is on a label beside it.
_BOXES = """(() => {
    const found = [];
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide`);
    const box = (each) => each.getBoundingClientRect();
    for (const chart of document.querySelectorAll('.chart')) {
        const around = box(chart);
        for (const each of chart.querySelectorAll('*')) {
            const { left, right, top, bottom, width } = box(each);
            if (width && (left < around.left || right > around.right || top < around.top || bottom > around.bottom)) {
                found.push(`${chart.id}: ${each.className} is cut`);
            }
        }
        for (const labels of chart.querySelectorAll('.ticks, .labels')) {
            const shown = [...labels.children].map(box).filter((each) => each.width);
            shown.slice(1).forEach((each, at) => {
                if (each.left < shown[at].right) found.push(`${chart.id}: labels overlap`);
            });
        }
    }
    return found;
})()"""

_AXE = """axe.run(document, { resultTypes: ['violations'] }).then((run) => run.violations.flatMap(
    (each) => each.nodes.map((node) => `${each.id}: ${node.target}: ${node.failureSummary}`)))"""


def flaws(browser: Chromium, name: str) -> list[str]:
    """What is wrong with the page that is open; its pictures are kept under this name."""
    found = []
    browser.evaluate(install.axe().read_text() + "; 0")
    ARTEFACTS.mkdir(exist_ok=True)
    for scheme in SCHEMES:
        browser.prefer(scheme)
        for width in WIDTHS:
            browser.resize(width, _HEIGHT)
            place = f"{name}-{width}-{scheme}"
            found += [f"{place}: {each}" for each in (*browser.evaluate(_BOXES), *browser.evaluate(_AXE))]
            (ARTEFACTS / f"{place}.png").write_bytes(picture(browser, width))
    return found


def picture(browser: Chromium, width: int, *, top: float = 0, bottom: float = _MOST_HEIGHT) -> bytes:
    """The page as it is, from one height to another, as a PNG."""
    height = min(bottom, browser.evaluate("document.documentElement.scrollHeight")) - top
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    return browser.screenshot(format="png", clip=clip, captureBeyondViewport=True)
