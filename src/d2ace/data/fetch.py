"""Downloads: over pooch, checked by SHA-256, tried again on failure, never half there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from d2ace.data import catalogue
from d2ace.data.cache import digest
from d2ace.data.container import DataError, UnknownDataError

Progress = Callable[[str, int, int], None]
"""Called with file name, bytes so far and bytes in all."""

_TIMEOUT = 30  # seconds without a single byte


def fetch(
    name: str | catalogue.Dataset,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    retries: int = 3,
    wait: float = 1.0,
) -> list[Path]:
    """Download the files of a dataset, unless they are there already.

    A file of other content, damaged or of another version, stays until its successor is there.

    ``folder`` is the cache by default, where `load` finds them. ``D2ACE_MIRROR`` may name a server
    that holds the files in the layout of ``D2ACE_DATA``; it is then asked instead of the original
    addresses. Checksums are those of the catalogue either way.
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
    progress: Progress | None,
    retries: int,
    wait: float,
) -> Path:
    target = root / file.path
    if target.is_file() and digest(target.read_bytes()) in (file.sha256, *file.known):
        return target
    try:
        import pooch
    except ImportError:
        raise DataError('fetching needs pooch; run: pip install "d2ace[bench]"') from None
    pooch.get_logger().setLevel("ERROR")
    problem = ""
    for attempt in range(retries):
        if attempt:
            time.sleep(wait * attempt)
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                downloader=_Downloader(file, progress),
            )
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
        finally:
            with contextlib.suppress(OSError):
                for left in target.parent.glob(f"tmp*{target.name}"):
                    left.unlink()
    raise DataError(problem)


class _Unreachable(Exception):
    """The connection failed or broke: another attempt may succeed."""


class _Refused(Exception):
    """The server answered, and does not have the file."""


class _Downloader:
    """What pooch calls to fill its temporary file; it stops at the size that the file must have."""

    def __init__(self, file: catalogue.File, progress: Progress | None) -> None:
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
