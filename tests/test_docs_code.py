"""Every piece of code on the site runs: blocks of pages, commands, examples of the reference.

A block that cannot run here stands in a list below with the reason; an entry of these lists that no
page has any more is an error too.
"""

from __future__ import annotations

import doctest
import gzip
import importlib
import inspect
import pkgutil
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import site_hooks
import torch
import yaml
from realdata import data_root  # noqa: F401  (a fixture)

import d2ace
from d2ace.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCED = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^::: ([\w.]+)(?:\n    options:\n      members: \[([^\]]+)\])?", re.MULTILINE)
PICTURES = {"text", "toml"}  # languages of blocks that are files, not code

BENCHMARK = "measures speed for minutes, and needs a quiet machine"
LAUNCHER = "starts four processes; tests/training/test_processes.py does it with two"
DOWNLOAD = "downloads gigabytes"
GPU = "needs VOC2007 or COCO, and a GPU; tests/images does it with fewer and smaller images"
NOT_RUN = {
    "torchrun --nproc-per-node=4 -m d2ace train": LAUNCHER,
    "fabric run --devices 4": LAUNCHER,
    "python reproduction/build.py": "writes its pages anew; tests/reproduction checks them",
    "python reproduction/second.py": "adds the runs of hours to published results",
    "python reproduction/static_controls.py": "trains for hours",
    "python benchmarks/": BENCHMARK,
    "mkdir -p data/voc2007 && cd data/voc2007\ncurl": DOWNLOAD,
    "mkdir -p data/coco && cd data/coco\nfor part in": DOWNLOAD,
    "d2ace train --data voc2007": GPU,
    "d2ace train --data coco": GPU,
    "d2ace inspect": "needs the run above it; tests/cli/test_inspect_command.py trains one",
}
"""Beginnings of commands that no test runs, and why."""

NOT_TRIED = {
    "d2ace.training.api.train": "trains for seconds; the guide does the same",
    "d2ace.data.images": "needs VOC2007; the guide does the same",
}
"""Objects whose examples in the docstring are marked as skipped, and why."""


def in_nav(entries: Any) -> Iterator[str]:
    for entry in entries:
        for target in [entry] if isinstance(entry, str) else entry.values():
            yield from [target] if isinstance(target, str) else in_nav(target)


PAGES = list(in_nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))


def read(page: str) -> str:
    """A page of the site; some live outside docs/."""
    path = DOCS / page
    return (path if path.is_file() else ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> list[tuple[int, str]]:
    """Line and text of the page's blocks in these languages."""
    text = read(page)
    return [
        (text.count("\n", 0, block.start(3)), block[3])
        for block in FENCED.finditer(text)
        if block[2] in languages
    ]


def test_every_block_says_what_it_is() -> None:
    """Only then the tests below find it."""
    for page in PAGES:
        found = {block[2] for block in FENCED.finditer(read(page))}
        assert found <= {"python", "sh", "", *PICTURES}, page


# Python on pages ----------------------------------------------------------------------------


def for_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    arff = "@relation mine\n@attribute x real\n@attribute sun {0,1}\n@data\n0.5,1\n0.1,0\n"
    (folder / "mine.arff.gz").write_bytes(gzip.compress(arff.encode()))
    label = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sun"/></labels>'
    (folder / "mine.xml").write_text(label)
    monkeypatch.setenv("D2ACE_CACHE", str(folder / "cache"))
    return {}


def for_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(ROOT / "tests" / "images")
    makers = importlib.import_module("image_makers")
    names = ("dog", "sofa", "tvmonitor")
    makers.make_voc(folder / "data" / "voc2007", {f"{k:06}": [(names[k % 3], 0)] for k in range(9)})
    words = ("dog", "sofa", "tv", "monitor", "cat")
    vectors = "\n".join(f"{word} " + " ".join(["0.5"] * 300) for word in words)
    (folder / "glove.6B.300d.txt").write_text(vectors + "\n")
    makers.make_photos(folder / "photos", 48, 16)
    monkeypatch.setenv("D2ACE_CACHE", str(folder / "cache"))
    return {"backbone": makers.Backbone()}


def for_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(ROOT / "tests" / "benchmark")
    importlib.import_module("report_data").small(folder / "runs.db").close()
    return {}


PREPARED: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "how-to/load-data.md": for_data,
    "how-to/images.md": for_images,
    "how-to/read-a-report.md": for_report,
}
REAL_DATA = {"how-to/load-data.md", "how-to/prepare-and-split.md"}
PRINTED = {
    "how-to/check-batches.md": ["The loader draws from BatchSampler over RandomSampler"],
    "how-to/prepare-and-split.md": ["birds, prepared by protocol 'paper': kept 322 of 645 rows"],
    "how-to/resume.md": ["epoch 3\nepoch 4\n"],
    "how-to/run-a-grid.md": ["/ CLIF / Random"],
    "how-to/train-a-run.md": ["RunResult(digits, mlp, d2ace, fold 0, seed 0: test macro_auc"],
    "reference/metrics.md": ["0 labels have one class only", "nan nan", "Random win"],
    "reference/models.md": ["classification"],
}
NOISY = {  # what the frameworks say of themselves
    "how-to/lightning.md": [
        pytest.mark.filterwarnings("ignore:.*does not have many workers"),
        pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    ],
    "how-to/several-processes.md": [
        pytest.mark.filterwarnings("ignore:torch.distributed is .*uninitialized"),
    ],
}
WITH_PYTHON = [
    pytest.param(page, marks=NOISY.get(page, ()))
    for page in PAGES
    if blocks(page, "python") and not page.startswith("tutorials/")  # these run as notebooks
]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_runs(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Blocks of one page run top to bottom in one namespace."""
    if page in REAL_DATA:
        monkeypatch.setenv("D2ACE_DATA", str(request.getfixturevalue("data_root")))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": Path(page).stem}
    if page in PREPARED:
        namespace |= PREPARED[page](tmp_path, monkeypatch)
    with torch.random.fork_rng(devices=[]):
        for line, code in blocks(page, "python"):
            padded = "\n" * line + code  # so that a traceback names the right line
            exec(compile(padded, page, "exec"), namespace)  # noqa: S102  (our own documentation)
    printed = capsys.readouterr().out
    for words in PRINTED.get(page, []):
        assert words in printed


# Commands on pages --------------------------------------------------------------------------


def not_run(command: str) -> list[str]:
    return [beginning for beginning in NOT_RUN if command.startswith(beginning)]


def commands() -> list[tuple[str, str]]:
    """Page and command; a block that is a script counts as one."""
    found = []
    for page in PAGES:
        for _, text in blocks(page, "sh", ""):
            script = any("\n" in beginning for beginning in not_run(text))
            found += [(page, part) for part in ([text] if script else text.splitlines())]
    return found


RUN = [(page, command) for page, command in commands() if not not_run(command)]


def test_no_reason_is_left_over() -> None:
    met = {beginning for _, command in commands() for beginning in not_run(command)}
    assert met == set(NOT_RUN)


def for_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands find in their folder: the grid and the classes that a page shows."""
    for_report(folder, monkeypatch)
    ((_, grid),) = blocks("how-to/run-a-grid.md", "toml")
    (folder / "mine.toml").write_text(grid)
    shutil.copy(folder / "runs.db", folder / "images.db")
    ((_, grid),) = blocks("how-to/images.md", "toml")
    (folder / "images.toml").write_text(grid)
    (folder / "my-data.arff").write_text("")
    (folder / "my.csv").write_text("x,label:sun\n" + "1,1\n2,0\n" * 20)
    (folder / "issues.csv").write_text("row,label,given,suggested\n")
    (folder / "my_selector.py").write_text(
        "import d2ace\nclass MySelector(d2ace.Random):\n    pass\n"
    )
    ((_, model),) = blocks("how-to/own-model.md", "python")
    (folder / "mine.py").write_text(model)
    unused = shutil.ignore_patterns("figures", "__pycache__")
    shutil.copytree(ROOT / "reproduction", folder / "reproduction", ignore=unused)


@pytest.mark.filterwarnings("ignore")  # the command line shows warnings as notes
@pytest.mark.parametrize(("page", "command"), RUN, ids=lambda value: value[:60])
def test_commands_run(
    page: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """As they stand, but for grids, which only say what they would run, and shorter training."""
    program, *words = shlex.split(command, comments=True)
    assert program == "d2ace", f"{page}: no test runs {command!r}; give it a reason in NOT_RUN"
    if words[0] in ("bench", "ablate", "sweep"):
        words = [*words, "--dry-run"] if "--dry-run" not in words else words
    if words[0] == "train":
        words += ["--epochs", "1"]
    monkeypatch.setenv("D2ACE_DATA", str(request.getfixturevalue("data_root")))
    for_commands(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0


# Examples in the reference ------------------------------------------------------------------


def resolve(name: str) -> Any:
    """An attribute before a module: the folder of published folds is not the function."""
    thing: Any = d2ace
    for part in name.split(".")[1:]:
        if not hasattr(thing, part):
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return thing


def shown_objects() -> dict[str, Any]:
    """What the reference shows, by name, with its public members."""
    found: dict[str, Any] = {}
    for page in PAGES:
        for name, members in SHOWN.findall(site_hooks.with_lists(read(page))):
            names = [name] + [f"{name}.{member}" for member in re.findall(r"\w+", members)]
            for each in names:
                found[each] = thing = resolve(each)
                if inspect.isclass(thing):
                    found |= {
                        f"{each}.{key}": value
                        for key, value in vars(thing).items()
                        if not key.startswith("_") and (callable(value) or hasattr(value, "fget"))
                    }
    return found


def test_the_reference_shows_examples_only_where_they_run() -> None:
    """Code in a docstring is an example with >>>, or nothing would run it."""
    for name, thing in shown_objects().items():
        text = inspect.getdoc(thing) or ""
        plain = re.search(r"^\S.*\n\n {4}(?!>>>|\.\.\.)\S", text, re.MULTILINE)
        assert plain is None, f"{name}: {plain and plain[0]!r}"
        headed = ">>> " not in text or "Examples\n--------\n" in text
        assert headed, f"{name}: without a heading, examples are shown as quotations"
        assert "```" not in text, name


def test_the_reference_shows_what_people_use() -> None:
    shown = set(shown_objects())
    assert {f"d2ace.{method.__name__}" for method in d2ace.SELECTORS.values()} <= shown
    assert "d2ace.Insights" in shown
    for name in ("benchmark", "data", "evaluation", "insights", "models", "report"):
        module = importlib.import_module(f"d2ace.{name}")
        known = {key for key in module.__all__ if callable(getattr(module, key))}
        assert {f"d2ace.{name}.{key}" for key in known} - shown <= {"d2ace.insights.Insights"}
    assert {"d2ace.train", "d2ace.load_run"} <= {
        f"d2ace.{name.rsplit('.', 1)[1]}" for name in shown if ".training." in name
    }


def modules() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(d2ace.__path__, "d2ace.")]
    return [name for name in found if name != "d2ace.__main__"]


def examples() -> list[tuple[str, doctest.DocTest]]:
    finder, found = doctest.DocTestFinder(exclude_empty=True), []
    for name in modules():
        origin = importlib.util.find_spec(name)
        if origin is None or ">>> " not in Path(str(origin.origin)).read_text(encoding="utf-8"):
            continue
        for test in finder.find(importlib.import_module(name)):
            if test.examples:
                found.append((test.name, test))
    return found


@pytest.mark.parametrize(("name", "example"), examples(), ids=lambda value: str(value)[:60])
def test_examples_of_docstrings_run(name: str, example: doctest.DocTest) -> None:
    skipped = any(line.options.get(doctest.SKIP) for line in example.examples)
    assert skipped == (name in NOT_TRIED), f"{name}: skipped examples need a reason in NOT_TRIED"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    result = runner.run(example)
    assert not result.failed
