"""`load`: a dataset by its name, or from any file that can be read."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from d2ace.data.readers.arff import READER_VERSION, declares_any, read_arff, read_arff_features
from d2ace.data.readers.csv_table import read_csv, read_csv_features
from d2ace.data.readers.label_names import Labels, label_file
from d2ace.data.readers.libsvm import read_libsvm, read_libsvm_features
from d2ace.data.readers.mat import read_mat, read_mat_features
from d2ace.data.readers.npz import read_npz, read_npz_features
from d2ace.data.readers.source import Source, enough_memory, format_of, present, shown

from . import cache as kept
from . import catalogue
from .container import DataError, DataWarning, MultiLabelData, UnknownDataError

LIBSVM_SUFFIXES = (".svm", ".libsvm", ".svmlight", ".txt")


def load(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    labels: Labels = None,
    labels_at: Literal["start", "end"] = "end",
    nominal: Literal["ordinal", "onehot"] = "ordinal",
    missing: Literal["mean", "error"] = "mean",
    drop: Collection[str] | None = None,
    repair: bool = False,
    cache: bool = True,
) -> MultiLabelData:
    """Load a dataset by name or from a file.

    Parameters
    ----------
    source
        A name of the catalogue (``d2ace data list``), ``"digits"``, or the path of an ARFF, LibSVM,
        CSV, NPZ or MATLAB file; texts ending in ``.gz`` or ``.bz2`` are read too. Several ARFF or
        LibSVM paths that belong together (train and test part) are joined in the order given. Of a
        CSV file, columns whose name begins with ``label:`` are labels.
    labels, labels_at
        Which attributes of an ARFF file are labels: names, a count at the ``"start"`` or ``"end"``,
        or the path of a MULAN label list. By default the ``.xml`` beside the file says it, or else
        MEKA's option ``-C`` in the relation. ``label_names`` keep the order of the columns.
    nominal
        ``"ordinal"``: a nominal feature is the position of its value in the declaration (0, 1, ..),
        which keeps the paper's d. ``"onehot"``: attributes of three and more values become one
        column for each value.
    missing
        ``"mean"``: the attribute's mean (nominal: its most frequent value), with a warning that
        states the count. ``"error"``: refuse.
    drop
        Features to leave out. By default what the catalogue says of the dataset; ``()``: none.
    repair
        Realign the labels of the rcv1 subsets, which circulate shifted. Datasets without such a
        defect are given as they are.
    cache
        Keep the parsed file, keyed by its content, and use it the next time.

    Raises
    ------
    DataError
        One sentence that says what is wrong, where, and what to do.
    """
    for option, value, known in (
        ("nominal", nominal, ("ordinal", "onehot")),
        ("missing", missing, ("mean", "error")),
        ("labels_at", labels_at, ("start", "end")),
    ):
        if value not in known:
            raise UnknownDataError(f"{option}={value!r} is unknown; use {' or '.join(known)}")
    if isinstance(labels, np.integer):
        labels = int(labels)
    if not isinstance(labels, (int, str, os.PathLike, Iterable, type(None))):
        raise UnknownDataError(f"labels={labels!r} is neither a count, nor names, nor a path")
    if labels is not None and not isinstance(labels, (int, str, os.PathLike)):
        labels = list(labels)
    if isinstance(source, str) and source.lower() == catalogue.EMBEDDED:
        from .digits import load_digits

        return load_digits()
    entry = catalogue.find(source) if isinstance(source, str) else None
    if entry is not None:
        places = catalogue.locate(entry)
        paths = [places[file.path] for file in entry.needed() if file.role == "data"]
    else:
        paths = _paths(source)
    form = _form(paths)
    if form != ".arff" and (labels is not None or drop or repair):
        raise UnknownDataError(
            f"{shown(paths[0])}: labels=, drop= and repair= apply to ARFF files only"
        )
    with enough_memory(paths[0]):
        sources = [Source.read(path) for path in paths]
        if form == ".npz":
            return read_npz(sources[0])
        if form == ".mat":
            return read_mat(sources[0])
        if form == ".csv":
            how = {"reader": ["csv", 1], "files": [paths[0].name], "missing": missing}
            return _remembered(cache, sources, how, lambda: read_csv(sources[0], missing), [])
        if form in LIBSVM_SUFFIXES:
            how = {"reader": ["libsvm", READER_VERSION], "files": [path.name for path in paths]}
            return _remembered(cache, sources, how, lambda: (read_libsvm(sources), []), [])
        options = {"labels_at": labels_at, "nominal": nominal, "missing": missing}
        return _load_arff(entry, sources, labels, options, drop, repair, cache)


def load_features(source: str | os.PathLike[str], names: Sequence[str]) -> MultiLabelData:
    """New rows with the features ``names`` (`SavedRun.feature_names`), with or without labels.

    ``source`` is what `load` takes. What tells labels from features are the names; of LibSVM rows,
    which have none, the index. Missing cells are filled from the file's own rows and remembered in
    ``missing``.
    """
    if isinstance(source, str) and (
        source.lower() == catalogue.EMBEDDED or catalogue.find(source) is not None
    ):
        return load(source)
    paths = _paths(source)
    form = _form(paths)
    with enough_memory(paths[0]):
        file = Source.read(paths[0])
        if form == ".npz":
            return read_npz_features(file)
        if form == ".mat":
            return read_mat_features(file)
        if form == ".csv":
            return read_csv_features(file)
        if form in LIBSVM_SUFFIXES:
            return read_libsvm_features(file, names)
        if numbered(names) and not declares_any(file, names):
            return load(source)  # features go by position, so its label list must tell
        return read_arff_features(file, names)


def numbered(names: Sequence[str]) -> bool:
    """Whether features have the names that readers give to features without one."""
    return all(re.fullmatch(r"(feature|index)_\d+", name) for name in names)


def _load_arff(
    entry: catalogue.Dataset | None,
    sources: list[Source],
    labels: Labels,
    options: dict[str, Any],
    drop: Collection[str] | None,
    repair: bool,
    cache: bool,
) -> MultiLabelData:
    """`load` for ARFF files, which the catalogue may know."""
    path, notes = sources[0].path, []
    name = entry.name if entry is not None else None
    # A file that is known by its checksum gets the same care under any name.
    matches = [catalogue.recognise(kept.digest(source.stored)) for source in sources]
    if entry is None and matches[0] is not None:
        entry = matches[0][0]
        if [match[1] for match in matches if match] == [f for f in entry.files if f.role == "data"]:
            name = entry.name  # the whole dataset, not a part of it
    elif entry is not None and any(match is None or match[0] != entry for match in matches):
        if path.is_relative_to(catalogue.fetched_folder()):
            raise catalogue.damaged(entry, path)
        notes.append(f"is not a copy of {entry.name!r} that the catalogue knows by its checksum")

    shift = None
    if entry is not None and entry.misaligned is not None:
        shift = dict(entry.misaligned) if repair else None
        notes += [] if repair else entry.defects
    elif repair and entry is None:
        raise UnknownDataError(f"{path}: repair=True: no defect of this file is known")
    if labels is None and entry is not None:
        labels = entry.labels_at_end
    listed = _label_list(labels, path, entry)
    if listed is not None and listed.path.is_relative_to(catalogue.fetched_folder()):
        match = catalogue.recognise(kept.digest(listed.stored))
        if entry is not None and (match is None or match[0] != entry):
            raise catalogue.damaged(entry, listed.path)
    if drop is None:
        drop = entry.drop if entry is not None else ()
    dropped = (drop,) if isinstance(drop, str) else tuple(drop)

    def read() -> tuple[MultiLabelData, list[str]]:
        data, remarks = read_arff(sources, listed=listed, labels=labels, drop=dropped, **options)
        data = data if name is None else replace(data, name=name)
        return (realign(data, **shift) if shift else data), remarks

    how = options | {
        "reader": ["arff", READER_VERSION],
        "files": [source.path.name for source in sources],
        "name": name,
        "labels": None if listed else labels if isinstance(labels, int) else _texts(labels),
        "drop": sorted(dropped),
        "shift": shift,
    }
    everything = sources if listed is None else [*sources, listed]
    return _remembered(cache, everything, how, read, notes)


def _paths(source: Any) -> list[Path]:
    """The paths that are asked for; a lone word that is no file was meant as a name."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not os.fspath(source):
            raise UnknownDataError("an empty name was given; see: d2ace data list")
        if isinstance(source, str) and not path.suffix and os.sep not in source:
            with contextlib.suppress(OSError, ValueError):
                if path.exists():
                    return [path]
            raise catalogue.unknown(source)
        return [path]
    try:
        paths = [Path(item) for item in source]
    except TypeError:
        raise UnknownDataError(
            f"{source!r} is neither a name nor a path; see: d2ace data list"
        ) from None
    if not paths:
        raise UnknownDataError("an empty list of paths was given; name at least one file")
    return paths


def _form(paths: list[Path]) -> str:
    """The one format of all the files."""
    forms = {format_of(path) for path in paths}
    form = forms.pop()
    if forms:
        raise UnknownDataError(f"{shown(paths[0])}: and its companions are of different formats")
    if form in (".npz", ".mat") and paths[0].suffix.lower() != form:
        raise UnknownDataError(
            f"{shown(paths[0])}: {form} files are read as they are; decompress it"
        )
    if form in (".npz", ".mat", ".csv") and len(paths) > 1:
        raise UnknownDataError(f"{shown(paths[0])}: only ARFF and LibSVM files can be joined")
    if form not in (".arff", ".csv", ".npz", ".mat", *LIBSVM_SUFFIXES):
        Source.read(paths[0])  # a missing file or a folder is the better complaint
        known = ", ".join((".arff", ".csv", ".npz", ".mat", *LIBSVM_SUFFIXES))
        raise UnknownDataError(
            f"{shown(paths[0])}: unknown format; files end in {known} (texts also in .gz, .bz2)"
        )
    return form


def _label_list(labels: Labels, path: Path, entry: catalogue.Dataset | None) -> Source | None:
    """The label list that is asked for, lies beside the file, or belongs to the entry."""
    if isinstance(labels, (str, os.PathLike)):
        if isinstance(labels, str) and format_of(Path(labels)) != ".xml":
            raise UnknownDataError(
                f"labels={labels!r} is not the path of an .xml label list; "
                f"if it is the name of one label, write labels=[{labels!r}]"
            )
        return Source.read(Path(labels))
    if labels is not None:
        return None
    beside = label_file(path)
    if beside is None and entry is not None:
        for file in entry.needed():
            if file.role == "labels":
                beside = present(path.with_name(Path(file.path).name))
    return Source.read(beside) if beside is not None else None


def _texts(labels: Labels) -> list[str] | None:
    if labels is None or isinstance(labels, (int, str, os.PathLike)):
        return None
    return [str(name) for name in labels]


def _remembered(
    use_cache: bool,
    sources: Sequence[Source],
    how: dict[str, Any],
    read: Callable[[], tuple[MultiLabelData, list[str]]],
    notes: list[str],
) -> MultiLabelData:
    """What ``read`` gives, out of the cache if it is there; notes are repeated every time."""
    key = kept.key(sources, how) if use_cache else ""
    found = kept.recall(key) if use_cache else None
    if found is None:
        found = read()
        if use_cache:
            kept.keep(key, *found)
    data, remarks = found
    for note in [*notes, *remarks]:
        warnings.warn(f"{shown(sources[0].path)}: {note}", DataWarning, stacklevel=4)
    return data


def realign(data: MultiLabelData, *, first_row: int, columns: int) -> MultiLabelData:
    """Undo a label block that starts ``columns`` too early from ``first_row`` on (rcv1 subsets)."""
    X, Y = sp.csr_matrix(data.X), sp.csr_matrix(data.Y)
    spilled = X[first_row:, -columns:]
    if Y[first_row:, -columns:].nnz or (spilled.data != 1).any() or not spilled.nnz:
        raise DataError(
            f"{data.name!r} does not show the known shift of {columns} columns from row "
            f"{first_row}, so it cannot be repaired; load it without repair=True"
        )
    later = sp.hstack([spilled.astype(np.uint8), Y[first_row:, :-columns]], format="csr")
    rest = X[first_row:].copy()
    rest.data[rest.indices >= X.shape[1] - columns] = 0
    rest.eliminate_zeros()
    return replace(
        data,
        X=sp.vstack([X[:first_row], rest], format="csr"),
        Y=sp.vstack([Y[:first_row], later], format="csr"),
    )
