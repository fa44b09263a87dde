"""What a person reads about an error is a sentence, with a full stop."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from d2ace._util.errors import RunError, UserError
from d2ace.data import DataError, UnknownDataError
from d2ace.training import RunInterrupted

SOURCE = Path(__file__).parents[2] / "src" / "d2ace"
OURS = [UserError, RunError, DataError, UnknownDataError]
BUILT_IN = {"ValueError", "TypeError", "RuntimeError"}
RAISED_TO_CALLERS = ("_util", "evaluation", "integrations", "models", "selectors")
"""Packages that raise Python's own errors to their callers; others only to themselves."""


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("fold is 7; choose from 0 to 4", "fold is 7; choose from 0 to 4."),
        ("fold is 7; choose from 0 to 4.", "fold is 7; choose from 0 to 4."),
        ("Is it a label list?", "Is it a label list?"),
    ],
)
def test_an_error_ends_with_one_full_stop(kind: type[Exception], said: str, read: str) -> None:
    error = kind(said)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == read  # noqa: S301


def test_an_interrupted_run_ends_with_a_full_stop() -> None:
    error = pickle.loads(pickle.dumps(RunInterrupted(2, "stopped")))  # noqa: S301
    assert (error.signum, str(error)) == (2, "stopped.")


def last_words(sentence: ast.expr) -> str | None:
    """How a sentence ends, where the source tells."""
    if isinstance(sentence, ast.JoinedStr):
        sentence = sentence.values[-1]
    if isinstance(sentence, ast.FormattedValue):
        return f"{{{ast.unparse(sentence.value)}}}"
    known = isinstance(sentence, ast.Constant) and isinstance(sentence.value, str)
    return sentence.value if known else None


@pytest.mark.parametrize("package", RAISED_TO_CALLERS)
def test_sentences_of_pythons_own_errors_end_with_a_full_stop(package: str) -> None:
    unended = []
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            if ast.unparse(node.exc.func) in BUILT_IN and node.exc.args:
                words = last_words(node.exc.args[0])
                if words is not None and not words.endswith((".", "?")):
                    unended.append(f"{path.name}, line {node.lineno}: {words}")
    assert not unended
