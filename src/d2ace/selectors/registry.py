"""Methods by name."""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from d2ace._util import validation as inputs
from d2ace._util.hints import did_you_mean

from .active import Active
from .balance import Balance
from .base import Selector
from .d2ace import D2ACE
from .dihcl import DIHCL
from .hard_imb import HardImb
from .ml_unc import MLUnc
from .random import Random
from .recent import Recent

SELECTORS: dict[str, type[Selector]] = {
    method.name: method
    for method in (Random, Active, Recent, DIHCL, Balance, HardImb, MLUnc, D2ACE)
}


def make_selector(
    name: str, labels: inputs.Labels, features: inputs.Features = None, **options: Any
) -> Selector:
    """The selector called ``name``, with its options.

    ``name`` is a key of ``SELECTORS``, or says where a class of one's own is:
    ``"package.module:Class"`` or ``"path/to/file.py:Class"``.
    """
    return find_selector(name)(labels, features, **options)


def find_selector(name: str) -> type[Selector]:
    """The class that ``name`` means; see :func:`make_selector`."""
    if not isinstance(name, str):
        raise TypeError(f"A selector is found by its name, got {name!r}; {_instead_of(name)}.")
    if ":" in name:
        return _own_selector(name)
    if name not in SELECTORS:
        raise ValueError(
            f"There is no selector {name!r}{did_you_mean(str(name), list(SELECTORS))}; "
            f"choose from {', '.join(SELECTORS)}, or name your own as package.module:Class or "
            "file.py:Class."
        )
    return SELECTORS[name]


def _instead_of(given: Any) -> str:
    """What to do for somebody who gave no name."""
    if not isinstance(given, type):
        return f"write one of {', '.join(SELECTORS)}"
    name = getattr(given, "name", None)
    return f"write {name!r}" if name in SELECTORS else "call a class of your own directly"


def selector_file(name: str) -> Path | None:
    """The file of a selector named ``path/to/file.py:Class``; None for all others."""
    place = name.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else None


def _own_selector(name: str) -> type[Selector]:
    place, _, class_name = name.rpartition(":")
    file = selector_file(name)
    if file is not None and not file.is_file():
        raise _not_found(name, f"there is no file {file}")
    try:
        module = import_module(place) if file is None else _module_of(file)
    except Exception as problem:
        if file is None and _is_missing(place, problem):
            raise _not_found(name, problem) from problem
        raise ValueError(
            f"{place} could not be imported ({type(problem).__name__}: {problem}); mend the file."
        ) from problem
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, Selector):
        raise ValueError(
            f"{place} has no selector {class_name!r}; it must be a subclass of d2ace.Selector."
        )
    return found


def _not_found(name: str, reason: object) -> ValueError:
    return ValueError(
        f"The selector {name!r} cannot be found ({reason}); write it as package.module:Class or "
        "path/to/file.py:Class."
    )


def _is_missing(place: str, problem: Exception) -> bool:
    """Whether the module ``place`` itself is not there, rather than one that it imports."""
    if not place or place.startswith("."):  # what Python cannot look for
        return True
    absent = problem.name if isinstance(problem, ModuleNotFoundError) else None
    return absent is not None and f"{place}.".startswith(f"{absent}.")


def _module_of(file: Path) -> ModuleType:
    """Import a file under a name of its own, once."""
    source = file.read_bytes()
    identity = str(file.resolve()).encode() + b"\0" + source  # edited: another module
    name = f"d2ace_own_{hashlib.sha256(identity).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader: it takes bytecode of before for a file of the same size and time.
        exec(compile(source, str(file), "exec"), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module
