"""Classes by name: the library's, and your own as package.module:Class or file.py:Class."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from .hints import did_you_mean

Class = TypeVar("Class")
_OWN = "d2ace_own_"  # how names of modules made of a user's file begin
_imported: WeakKeyDictionary[type[Any], str] = WeakKeyDictionary()
"""Classes of a user's modules -> the checksum of their file when it was first asked for."""


@dataclass(frozen=True)
class Family(Generic[Class]):
    """A kind of classes that are found by name."""

    kind: str
    """What one of them is called: "selector"."""
    base: type[Any]
    public: str
    """How a user imports the base: "d2ace.Selector"."""
    packaged: Mapping[str, type[Class]]

    def find(self, name: str) -> type[Class]:
        """The class that ``name`` means: a key of ``packaged``, or the place of your own class."""
        if not isinstance(name, str):
            raise TypeError(
                f"A {self.kind} is found by its name, got {name!r}; {self._instead_of(name)}."
            )
        if is_own(name):
            return self._own(name)
        if name not in self.packaged:
            raise ValueError(
                f"There is no {self.kind} {name!r}{did_you_mean(name, list(self.packaged))}; "
                f"choose from {', '.join(self.packaged)}, or name your own as "
                "package.module:Class or file.py:Class."
            )
        return self.packaged[name]

    def source(self, name: str) -> str | None:
        """SHA-256 of the file of your own class; None for classes of the library."""
        if not isinstance(name, str) or not is_own(name):
            return None
        file = own_file(name)
        if file is not None:
            return self._checksum(name, file)
        found = self.find(name)
        place = inspect.getsourcefile(found)
        if found.__module__.partition(".")[0] == "d2ace" or place is None:  # compiled code has none
            return None
        now = self._checksum(name, Path(place))
        if _imported.setdefault(found, now) != now:
            raise ValueError(
                f"{place} has changed since Python imported the {self.kind} {name!r}; start Python "
                "again, so that the code in the file is what runs."
            )
        return now

    def _checksum(self, name: str, file: Path) -> str:
        try:
            return hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError:
            raise self._not_found(name, f"there is no file {file}") from None

    def check_source(self, name: str, described: str | None) -> str | None:
        """The checksum of a class's file; a file that is not as ``described`` is not run."""
        now = self.source(name)
        if now is None:
            return described
        if described not in (None, now):
            raise ValueError(
                f"{own_file(name) or name} has changed since this run was described (its checksum "
                f"was {str(described)[:8]}..., now {str(now)[:8]}...); describe it anew."
            )
        return now

    def _instead_of(self, given: Any) -> str:
        """What to do for somebody who gave no name."""
        if not isinstance(given, type):
            return f"write one of {', '.join(self.packaged)}"
        name = getattr(given, "name", None)
        return f"write {name!r}" if name in self.packaged else "call a class of your own directly"

    def _own(self, name: str) -> type[Class]:
        place, _, class_name = name.rpartition(":")
        file = own_file(name)
        if file is not None and not file.is_file():
            raise self._not_found(name, f"there is no file {file}")
        try:
            module = import_module(place) if file is None else _module_of(file)
        except (Exception, SystemExit) as problem:  # as a script without "if __name__" ends
            if file is None and _is_missing(place, problem):
                raise self._not_found(name, problem) from problem
            raise ValueError(
                f"{place} could not be imported ({type(problem).__name__}: {problem}); mend the "
                "file."
            ) from problem
        found = getattr(module, class_name, None)
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise ValueError(
                f"{place} has no {self.kind} {class_name!r}; it must be a subclass of "
                f"{self.public}."
            )
        return found

    def _not_found(self, name: str, reason: object) -> ValueError:
        return ValueError(
            f"The {self.kind} {name!r} cannot be found ({reason}); write it as "
            "package.module:Class or path/to/file.py:Class."
        )


def is_own(name: str) -> bool:
    """Whether a name is the place of your own class."""
    return ":" in name


def own_file(name: str) -> Path | None:
    """The file of a class named ``path/to/file.py:Class``; None for all others."""
    place = name.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else None


def shown_name(name: str) -> str:
    """Your own class as tables show it: its name without its place."""
    return name.rpartition(":")[2]


def own_place(error: BaseException) -> str | None:
    """The line of a user's file ``file.py:Class`` that raised an error; None if none did."""
    places = [
        f"{frame.f_code.co_filename}, line {line},"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(_OWN)
    ]
    return places[-1] if places else None


def _is_missing(place: str, problem: BaseException) -> bool:
    """Whether the module ``place`` itself is not there, rather than one that it imports."""
    if not place or place.startswith("."):  # what Python cannot look for
        return True
    absent = problem.name if isinstance(problem, ModuleNotFoundError) else None
    return absent is not None and f"{place}.".startswith(f"{absent}.")


def _module_of(file: Path) -> ModuleType:
    """Import a file under a name of its own, once."""
    source = file.read_bytes()
    identity = str(file.resolve()).encode() + b"\0" + source  # edited: another module
    name = f"{_OWN}{hashlib.sha256(identity).hexdigest()[:16]}"
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
