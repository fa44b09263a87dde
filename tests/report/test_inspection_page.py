"""The page on insights as a reader sees it, in a real browser on a desktop and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from browser import Browser, find_browser
from image_makers import make_photos
from inspected import HOSTILE, labels_with, trained

from d2ace.data import MultiLabelData
from d2ace.data.images import load_images
from d2ace.report import write_inspection

WIDTHS = pytest.mark.parametrize("width", [360, 1280])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium here: apt-get install --no-install-recommends chromium")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, labels and features with names that would break a careless page."""
    labels = labels_with(60, 5)
    wrong = [(row, at) for row in range(12) for at in range(5)]
    rows = [f"{HOSTILE[row % 5]} {row}" for row in range(60)]
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    data = MultiLabelData("made", X, labels.astype(np.uint8), tuple(HOSTILE), tuple(HOSTILE))
    insights = trained(labels, wrong, row_names=rows, label_names=HOSTILE)
    folder = tmp_path_factory.mktemp("hostile")
    return write_inspection(
        insights, folder, data=data, again="<b>'\"; rm", remark="<i>A remark.</i>"
    ).page


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_photos(tmp_path_factory.mktemp("photos"), 20, 2)
    data = load_images("csv", root)
    insights = trained(
        data.Y.toarray().astype(int), [(4, 1), (6, 2), (8, 0)], label_names=data.label_names
    )
    (root / "06.jpg").unlink()
    return write_inspection(insights, tmp_path_factory.mktemp("page"), data=data).page


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 rows with 100 labels, words as features, and thousands of suspects."""
    rng = np.random.default_rng(0)
    n, q = 100_000, 100
    labels = (rng.random((n, q)) < 0.05).astype(np.int64)
    wrong = list(zip(rng.integers(0, n, 20_000).tolist(), rng.integers(0, q, 20_000), strict=True))
    X = sp.random(n, 500, density=0.01, format="csr", dtype=np.float32, random_state=0)
    data = MultiLabelData(
        "large",
        X,
        labels.astype(np.uint8),
        tuple(f"word{at}" for at in range(500)),
        tuple(f"label{at}" for at in range(q)),
    )
    insights = trained(labels, wrong, visits=2, label_names=data.label_names)
    return write_inspection(insights, tmp_path_factory.mktemp("large"), data=data).page


def opened(browser: Browser, page: Path, width: int) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    browser.show(page, width=width)


@WIDTHS
@pytest.mark.parametrize("kind", ["hostile", "photos", "large"])
def test_nothing_is_asked_for_and_nothing_is_wider_than_the_screen(
    request: pytest.FixtureRequest, browser: Browser, kind: str, width: int
) -> None:
    page: Path = request.getfixturevalue(kind)
    opened(browser, page, width)
    elsewhere = [url for url in browser.requests if not url.startswith("data:image/")]
    assert elsewhere == [page.as_uri()]
    assert browser.complaints == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value("document.scripts.length") == 0
    boxes = "Array.from(document.querySelectorAll('.scroll'))"
    assert browser.value(f"{boxes}.filter(b => b.scrollWidth > b.clientWidth).length") == 0


@WIDTHS
def test_hostile_names_are_shown_as_they_are(hostile: Path, browser: Browser, width: int) -> None:
    opened(browser, hostile, width)
    assert browser.value("document.images.length + document.querySelectorAll('i').length") == 0
    shown = browser.value("document.body.innerText")
    for name in (*HOSTILE[:2], *HOSTILE[3:], "<i>A remark.</i>", "d2ace train <b>'\"; rm"):
        assert name in shown
    assert HOSTILE[2] not in shown  # it is cut
    assert f"{HOSTILE[2][:119]}…" in shown


def test_a_table_is_a_table_for_those_who_hear_it(hostile: Path, browser: Browser) -> None:
    """On a phone rows are drawn as blocks; what they are must not be lost."""
    tree = []
    for width in (1280, 360):
        opened(browser, hostile, width)
        browser.call("Accessibility.enable")
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        tree.append({role: roles.count(role) for role in ("table", "row", "rowheader", "cell")})
        assert roles.count("columnheader") == 6 + 5 + 7
    desktop, phone = tree
    assert desktop == phone
    assert desktop["table"] == 3
    # Some browsers forget what a table's parts are once they are drawn as blocks.
    parts = "table, thead, tbody, tr, th, td"
    unsaid = f"Array.from(document.querySelectorAll('{parts}')).filter(e => !e.role).length"
    assert browser.value(unsaid) == 0
    unnamed = "table:not(:has(caption)), svg:not([aria-label]), img:not([alt]), th:not([scope])"
    assert browser.value(f"document.querySelectorAll('{unnamed}').length") == 0


def test_pictures_are_shown_with_their_labels(photos: Path, browser: Browser) -> None:
    opened(browser, photos, 1280)
    cards = browser.value(
        "Array.from(document.querySelectorAll('#suspects .card')).map(c => c.innerText)"
    )
    assert len(cards) == 3
    (gone,) = [card for card in cards if "06.jpg" in card]
    assert "The picture cannot be read." in gone
    assert all(re.search(r"(Add|Remove) (red|green|blue)\? \(\d", card) for card in cards)
    loaded = "Array.from(document.images).filter(i => i.naturalWidth > 0).length"
    assert browser.value(loaded) == browser.value("document.images.length") > 2
    assert "1 of 3 pictures cannot be read" in browser.value("document.body.innerText")


def test_the_keyboard_reaches_every_part(hostile: Path, browser: Browser) -> None:
    opened(browser, hostile, 1280)
    reached = []
    for _ in range(30):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        reached.append(
            browser.value(
                "(e => e.getAttribute('href') || e.getAttribute('aria-labelledby'))"
                "(document.activeElement)"
            )
        )
    for part in ("#suspects", "#labels", "#map", "#hardest", "#files", "label_issues.csv"):
        assert part in reached
    for table in ("suspects-caption", "labels-caption", "hardest-caption"):
        assert table in reached  # what scrolls can be scrolled


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_ground(photos: Path, browser: Browser, scheme: str) -> None:
    """4.5 to 1, as WCAG asks for text of this size."""
    browser.show(photos, scheme=scheme)
    worst = browser.value(
        """(() => {
          const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
          const ground = e => { for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
          let worst = 99;
          for (const e of document.querySelectorAll('main *, header *')) {
            if (e.closest('svg') || !Array.from(e.childNodes).some(
              n => n.nodeType === 3 && n.textContent.trim())) continue;
            const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
            worst = Math.min(worst, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
          }
          return worst; })()"""
    )
    assert worst >= 4.5


def test_a_large_run_stays_light(large: Path, browser: Browser) -> None:
    assert large.stat().st_size < 2_000_000
    opened(browser, large, 1280)
    assert "of 10,000,000 labels look wrong" in browser.value(
        "document.querySelector('h1').innerText"
    )
    assert "the map shows their density" in browser.value(
        "document.querySelector('#map').innerText"
    )
    assert browser.value("document.querySelectorAll('.drawing svg *').length") < 8000
    caption = "document.querySelector('#labels-caption').innerText"
    assert "The 40 labels with the most flagged rows, of 100" in browser.value(caption)


def test_it_prints(photos: Path, browser: Browser, tmp_path: Path) -> None:
    browser.show(photos)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_motion_is_left_out_where_the_reader_asks_for_that(photos: Path, browser: Browser) -> None:
    browser.show(photos)
    browser.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    style = "getComputedStyle(document.documentElement).scrollBehavior"
    assert browser.value(style) == "auto"
