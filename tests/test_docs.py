"""The documentation keeps up with the code: cards, options, references, links, rooms."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import griffe
import pytest
import site_hooks
from mkdocs.utils.meta import get_data

import d2ace
from d2ace.selectors import CommonOptions, options_of
from d2ace.selectors.base import Selector

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
METHODS = DOCS / "reference" / "methods"
OVERVIEW = METHODS / "README.md"
SECTIONS = [
    "In plain words",
    "When it helps",
    "How to use it",
    "Options",
    "Equations and where they are",
    "Cost",
    "Source",
]
COMMON = set(CommonOptions.__annotations__)
OUTSIDE = (
    *("reproduction/README.md", "reproduction/rules.md", "reproduction/tables.md"),
    *(f"reproduction/trim/{name}.md" for name in ("README", "rules", "decision", "tables")),
)
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / page for page in OUTSIDE)]
LINKED = [
    *PAGES,
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"`(src/[\w/]+\.py): ([\w.]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")

by_method = pytest.mark.parametrize("name", list(d2ace.SELECTORS))
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def read(page: Path) -> str:
    assert page.is_file(), f"{page.relative_to(ROOT)} is missing"
    return page.read_text(encoding="utf-8")


def card(name: str) -> str:
    return get_data(read(METHODS / f"{name}.md"))[0].lstrip("\n")


def sections(text: str) -> dict[str, str]:
    """Second-level headings, in order, with what stands below them; code is left out."""
    parts = re.split(r"^## (.+)$", FENCED.sub("", text), flags=re.MULTILINE)
    headings = parts[1::2]
    assert len(set(headings)) == len(headings), f"a heading occurs twice: {headings}"
    return dict(zip(headings, parts[2::2], strict=True))


def option_table(section: str) -> dict[str, str]:
    """Option and default of every row of a table `option | symbol | default | meaning`."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|[^|\n]*\|$", section, flags=re.MULTILINE)
    assert len(rows) == len(dict(rows)), "an option is listed twice"
    return dict(rows)


def defaults_of(method: type[Selector]) -> dict[str, Any]:
    """Defaults of a class's keyword options; None where the preset decides."""
    found: dict[str, Any] = {}
    for owner in reversed(method.__mro__):
        if "__init__" in vars(owner) and issubclass(owner, Selector):
            for parameter in inspect.signature(owner.__init__).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    found[parameter.name] = parameter.default
    return found


def assert_defaults(table: dict[str, str], method: type[Selector]) -> None:
    known = defaults_of(method)
    for option, cell in table.items():
        if known[option] is None or cell.startswith("`torch."):
            continue
        assert re.fullmatch(r"`.+`", cell), f"the default of {option} is not in backticks: {cell}"
        assert ast.literal_eval(cell.strip("`")) == known[option], f"{option}: {cell}"


def defined_in(path: Path) -> set[str]:
    """Functions, classes and methods of a source file, methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return names


@by_method
def test_card_has_its_title(name: str) -> None:
    first = card(name).splitlines()[0]
    title = d2ace.SELECTORS[name].__name__
    assert re.fullmatch(r"# [\w-]+", first), first
    assert first[2:].replace("-", "") == title, f"{first!r} is not the card of {title}"


@by_method
def test_card_has_all_sections_in_order(name: str) -> None:
    found = sections(card(name))
    assert list(found) == SECTIONS
    empty = [heading for heading, body in found.items() if not body.strip()]
    assert empty in ([], ["How to use it"]), f"nothing below {empty}"


@by_method
def test_card_shows_code(name: str) -> None:
    text = card(name)
    usage = text[text.index("## How to use it") : text.index("## Options")]
    blocks = [code for language, code in FENCED.findall(usage) if language == "python"]
    assert blocks, "no python block below 'How to use it'"
    assert f"d2ace.{d2ace.SELECTORS[name].__name__}(" in blocks[0]


@by_method
def test_card_lists_the_options(name: str) -> None:
    method = d2ace.SELECTORS[name]
    section = sections(card(name))["Options"]
    table = option_table(section)
    own = set(options_of(method)) - COMMON
    assert own - set(table) == set(), "options that the card does not list"
    assert set(table) - own == set(), "options on the card that the class does not take"
    assert "(README.md#common-options)" in section, "no link to the common options"
    assert_defaults(table, method)


def test_overview_lists_the_common_options() -> None:
    table = option_table(sections(read(OVERVIEW))["Common options"])
    assert set(table) == COMMON
    assert_defaults(table, Selector)


@by_method
def test_card_begins_with_its_row_in_the_overview(name: str) -> None:
    head = site_hooks.card_head(name)
    assert tuple(head) == site_hooks.HEAD
    assert all(isinstance(cell, str) and cell for cell in head.values())


def test_every_card_has_a_method() -> None:
    cards = {page.stem for page in METHODS.glob("*.md")} - {"README"}
    assert cards == set(d2ace.SELECTORS)


@by_method
def test_card_says_where_its_equations_are(name: str) -> None:
    assert REFERENCE.search(sections(card(name))["Equations and where they are"])


@by_page
def test_references_exist(page: Path) -> None:
    text = read(page)
    references = REFERENCE.findall(text)
    assert len(re.findall(r"src/[\w/]+\.py", text)) == len(references), (
        "a source file is mentioned without a function: write `src/...: function`"
    )
    for file, function in references:
        assert (ROOT / file).is_file(), f"{file} does not exist"
        assert function in defined_in(ROOT / file), f"{file} has no {function}"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", read(page))):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: no such file"
        if file.suffix != ".md":
            continue
        headings = re.findall(r"^#+ (.+)$", FENCED.sub("", read(file)), flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
        assert not anchor or anchor in anchors, f"{target}: no such heading"


@by_page
def test_lists_are_lists_on_the_site_too(page: Path) -> None:
    """GitHub sees a list right below a paragraph; the site needs an empty line between them."""
    text = FENCED.sub("", read(page))
    assert not re.findall(r"^(?![-#| ]).+\n- .*", text, flags=re.MULTILINE)


def test_the_reference_gives_every_parameter_its_own_default() -> None:
    """Where several share a description, too; a name without one is required."""
    loader = griffe.GriffeLoader(
        search_paths=[ROOT / "src"],
        docstring_parser=griffe.Parser.numpy,
        extensions=griffe.load_extensions(str(DOCS / "reference.py")),
    )
    selector = loader.load("d2ace.selectors.base")["Selector"]
    (section,) = [part for part in selector.docstring.parsed if part.kind.value == "parameters"]
    shown = {parameter.name: parameter.value for parameter in section.value}
    assert [shown[name] for name in ("batch_size", "epochs", "warmup")] == ["128", "100", "10"]


def test_every_page_is_on_the_site() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        if page.parent != METHODS:  # the methods are listed by the hooks
            place = DOCS if DOCS in page.parents else ROOT
            assert f" {page.relative_to(place).as_posix()}\n" in listed


@pytest.mark.parametrize("room", ["tutorials", "how-to", "reference", "explanation"])
def test_a_room_lists_its_pages(room: str) -> None:
    """Its first page leads to every page in its folder; the overview of methods to the cards."""
    first = DOCS / room / "README.md"
    linked = {
        (first.parent / link.partition("#")[0]).resolve() for link in LINK.findall(read(first))
    }
    pages = {page for page in (DOCS / room).rglob("*.md") if page.parent != METHODS}
    assert pages - linked - {first} == set()


def test_every_guide_is_short() -> None:
    """A guide solves one task; what is looked up stands in the reference."""
    for page in (DOCS / "how-to").glob("*.md"):
        assert len(FENCED.sub("", read(page)).split()) < 2200, page.name


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_addresses_can_be_addresses(page: Path) -> None:
    """Nobody is asked; a host and no blank is what can be checked here."""
    for target in LINK.findall(FENCED.sub("", read(page))):
        if "://" in target:
            address = urlsplit(target)
            assert address.scheme in ("http", "https"), target
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", address.netloc), target


def test_what_a_checkout_installs_is_installed_from_a_checkout() -> None:
    """The package is on no index yet: a page says `pip install ".[extra]"`."""
    for page in LINKED:
        assert 'pip install "d2ace' not in read(page), page.name
        assert "pip install d2ace" not in read(page), page.name


def test_the_words_of_the_glossary_stand_in_order() -> None:
    rows = re.findall(
        r"^\| \*\*([\w-]+)\*\* \| .+ \|$", read(DOCS / "reference" / "glossary.md"), re.M
    )
    assert rows == sorted(rows)
    assert len(set(rows)) == len(rows) >= 20
