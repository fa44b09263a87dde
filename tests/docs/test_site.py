"""The built site: complete, quiet, searchable, and readable on a desk and on a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import picture
import pytest
from browser import Browser, find_browser
from commands import commands

import d2ace
from d2ace.evaluation import METRICS

ROOT = Path(__file__).resolve().parents[2]
LONG = "tables"  # the pages with every number


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """A server of the site, on the loopback interface only."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def read(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


def pages(site: Path) -> list[str]:
    """The folders of all pages, as they stand in an address."""
    found = sorted(site.rglob("index.html"))
    return [f"{page.parent.relative_to(site).as_posix()}/".replace("./", "") for page in found]


def test_it_lists_what_the_code_has(site: Path) -> None:
    assert "Start here" in read(site, ".")
    reference, overview = read(site, "reference/api/selectors"), read(site, "reference/methods")
    for name, method in d2ace.SELECTORS.items():
        assert f"d2ace.{method.__name__}" in reference
        assert f"<code>{name}</code>" in overview
        assert f"{name}/" in overview
    metrics = read(site, "reference/metrics")
    assert all(metric.definition.split(";")[0] in metrics for metric in METRICS.values())
    line = read(site, "reference/cli")
    for words, command in commands():
        assert f">{words}<" in line
        for option in command.params:
            assert all(f"<code>{name}" in line for name in option.opts if name.startswith("-"))
    assert not re.search(r"<!-- (table|reference|names) ", overview + metrics + line)
    assert not re.search(r":(?:meth|class|func|attr):", reference), "a role of Sphinx is shown"


def test_the_picture_shows_what_was_measured() -> None:
    """`python docs/picture.py` makes it, from the table of the page that it leads to."""
    assert len(picture.measured()) == 10
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.picture()


def test_pages_of_numbers_are_in_no_menu_and_no_search(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    locations = {entry["location"].partition("#")[0] for entry in found["docs"]}
    assert {page for page in locations if page.rstrip("/").endswith(LONG)} == set()
    assert {"", "how-to/resume/", "reference/glossary/", "reference/cli/"} <= locations
    assert (site / "reproduction" / "tables" / "index.html").is_file()  # a link still opens it
    assert not re.search(
        rf'class="md-nav__link"[^>]*href="[^"]*{LONG}/"', read(site, "explanation")
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_opens_quietly(site: Path, address: str, browser: Browser, width: int) -> None:
    """No message in the console, no request that leaves the site, nothing wider than the screen."""
    browser.requests.clear()
    browser.complaints.clear()
    wide = []
    for page in pages(site) if width == 1280 else ["", "how-to/resume/", "reference/models/"]:
        browser.show(f"{address}/{page}", width=width)
        if browser.value("document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(page)
    assert browser.complaints == []
    asked = [url for url in browser.requests if not url.startswith(("data:", "blob:"))]
    assert {url for url in asked if not url.startswith(f"{address}/")} == set()
    assert wide == []


MENU_FITS = """
new Promise(say => {
  let frames = 300  // in the first of which the theme sets the menu's height
  const menu = document.querySelector('.md-sidebar--primary .md-sidebar__scrollwrap')
  const look = () => {
    const fits = menu.scrollHeight <= menu.clientHeight + 1
    fits || !frames-- ? say(fits) : requestAnimationFrame(look)
  }
  look()
})
"""


def test_the_menu_fits_a_screen(address: str, browser: Browser) -> None:
    for page in ("tutorials/", "how-to/resume/", "reference/methods/d2ace/", "explanation/"):
        browser.show(f"{address}/{page}", height=900)
        assert browser.value(MENU_FITS), page
