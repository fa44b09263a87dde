"""Downloads: over pooch, checked by SHA-256, tried again on failure, never half there."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from d2ace._util.atomic import put_in_place
from d2ace._util.callbacks import FileProgress
from d2ace.data.readers.source import stored_bytes

from . import catalogue
from .cache import digest
from .container import DataError, DataWarning, UnknownDataError

_TIMEOUT = 30  # seconds without a single byte


def fetch(
    name: str | catalogue.Dataset,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: FileProgress | None = None,
    retries: int = 3,
    wait: float = 1.0,
) -> list[Path]:
    """Download the files of a dataset, unless they are there already.

    ``folder`` is the cache by default, where `load` finds them; what is damaged there is replaced,
    with a warning. In a folder of your own a file of other content is left alone, and refused.

    ``D2ACE_MIRROR`` may name a server that holds the files in the layout of ``D2ACE_DATA``; it is
    then asked instead of the original addresses. Checksums are those of the catalogue either way.
    """
    if retries < 1:
        raise UnknownDataError(f"retries={retries} leaves no attempt; use 1 or more")
    entry = catalogue.get(name) if isinstance(name, str) else name
    mirror = os.environ.get("D2ACE_MIRROR", "").rstrip("/")
    files = []
    for file in entry.needed():
        url = f"{mirror}/{file.path}" if mirror else file.url
        if url is None:
            raise DataError(f"{entry.name!r}: {catalogue.how_to_get(entry)}")
        files.append((file, url))
    root = Path(folder) if folder is not None else catalogue.fetched_folder()
    return [_fetch_file(entry, file, url, root, progress, retries, wait) for file, url in files]


def _fetch_file(
    entry: catalogue.Dataset,
    file: catalogue.File,
    url: str,
    root: Path,
    progress: FileProgress | None,
    retries: int,
    wait: float,
) -> Path:
    target = root / file.path
    if os.path.lexists(target):
        if target.is_file() and digest(stored_bytes(target)) in (file.sha256, *file.known):
            return target
        _replaceable(target, entry)
    try:
        import pooch
    except ImportError:
        raise DataError(
            'fetching needs pooch; install it with pip install ".[bench]" in a checkout of d2ace'
        ) from None
    pooch.get_logger().setLevel("ERROR")
    problem = ""
    for attempt in range(retries):
        if attempt:
            time.sleep(wait * attempt)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".d2ace-", dir=target.parent) as own:
                downloaded = pooch.retrieve(
                    url,
                    known_hash=f"sha256:{file.sha256}",
                    fname=target.name,
                    path=own,
                    downloader=_Downloader(file, progress),
                )
                put_in_place(Path(downloaded), target)
            return target
        except _Refused as error:
            raise DataError(f"{error}; {catalogue.how_to_get(entry)}") from None
        except _Unreachable as error:
            problem = f"{error}; are you online? If not, set D2ACE_DATA to a local copy"
        except ValueError:  # pooch: the checksum differs, and the file is gone
            problem = (
                f"the download of {url} failed its checksum and was deleted; "
                "try again later, or set D2ACE_DATA to a local copy"
            )
        except OSError as error:
            raise DataError(f"{target}: cannot be written ({error.strerror})") from None
    raise DataError(problem)


def _replaceable(target: Path, entry: catalogue.Dataset) -> None:
    """Only what lies where `fetch` alone writes is damaged; elsewhere it is somebody's own file."""
    if target.is_relative_to(catalogue.fetched_folder()) and target.is_file():
        message = f"{target}: is damaged (its checksum differs) and is fetched again"
        warnings.warn(message, DataWarning, stacklevel=4)
        return
    raise DataError(
        f"{target}: is not the file of {entry.name!r} that the catalogue knows, and is left alone; "
        "move it away, or choose another folder"
    )


class _Unreachable(Exception):
    """The connection failed or broke: another attempt may succeed."""


class _Refused(Exception):
    """The server answered, and does not have the file."""


class _Downloader:
    """What pooch calls to fill its temporary file; it stops at the size that the file must have."""

    def __init__(self, file: catalogue.File, progress: FileProgress | None) -> None:
        self.file, self.progress = file, progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests

        host = urlsplit(url).netloc
        try:
            with requests.get(url, stream=True, timeout=_TIMEOUT) as answer:
                if answer.status_code >= 500:
                    raise _Unreachable(f"{host} answered {answer.status_code} for {url}")
                if answer.status_code != 200:
                    raise _Refused(f"{host} answered {answer.status_code} for {url}")
                with open(output_file, "wb") as stream:
                    self._copy(answer, stream)
        except requests.exceptions.RequestException as error:
            if isinstance(error, ValueError):  # requests: the address itself is malformed
                raise _Refused(f"{url} is not a usable address") from None
            broke = isinstance(error, requests.exceptions.ChunkedEncodingError)
            what = "broke off" if broke else "cannot be reached"
            raise _Unreachable(f"{host} {what} (asked for {url})") from None

    def _copy(self, answer: Any, stream: Any) -> None:
        done = 0
        for piece in answer.iter_content(1 << 16):
            done += len(piece)
            if done > self.file.size:
                return  # too long to be the file; the checksum will say so
            stream.write(piece)
            if self.progress is not None:
                self.progress(Path(self.file.path).name, done, self.file.size)
