"""Downloads against a server of the test's own, on the loopback interface only."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Server

from d2ace.data import DataError, DataWarning, UnknownDataError, load
from d2ace.data.catalogue import Dataset, File, fetched_folder
from d2ace.data.fetch import fetch

ARFF = b"@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n1,1\n2,0\n"
LIST = b'<labels><label name="l"/></labels>'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in (
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "D2ACE_MIRROR",
        "D2ACE_DATA",
    ):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))


def entry(url: str) -> Dataset:
    def file(path: str, role: str, content: bytes) -> File:
        checksum = hashlib.sha256(content).hexdigest()
        return File(path, role, len(content), checksum, (), f"{url}/{path}")

    files = (file("tiny/tiny.arff", "data", ARFF), file("tiny/tiny.xml", "labels", LIST))
    return Dataset("tiny", "tiny", "test", 2, 1, 1, 0.5, 0.5, "nobody.", files)


def serve(server: Server, *arff: object) -> None:
    server.replies = {"/tiny/tiny.arff": list(arff) or [ARFF], "/tiny/tiny.xml": [LIST]}


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_fetched_files_are_checked_kept_and_loadable(server: Server) -> None:
    serve(server)
    seen: list[tuple[str, int, int]] = []
    paths = fetch(entry(server.url), progress=lambda *facts: seen.append(facts))
    assert paths == [fetched_folder() / "tiny" / name for name in ("tiny.arff", "tiny.xml")]
    assert [path.read_bytes() for path in paths] == [ARFF, LIST]
    assert seen == [("tiny.arff", len(ARFF), len(ARFF)), ("tiny.xml", len(LIST), len(LIST))]
    assert load(paths[0]).label_names == ("l",)
    assert fetch(entry(server.url)) == paths
    assert len(server.asked) == 2  # the second time nothing is asked for


def test_a_damaged_file_in_the_cache_is_fetched_again(server: Server) -> None:
    serve(server)
    damaged = fetched_folder() / "tiny" / "tiny.arff"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(ARFF[:-5])
    with pytest.warns(DataWarning, match=f"{damaged}: is damaged .* fetched again"):
        paths = fetch(entry(server.url))
    assert paths[0].read_bytes() == ARFF


@pytest.mark.parametrize("mine", [b"my own notes", ARFF[:-5], b"", None])
def test_a_strangers_file_in_a_chosen_folder_is_left_alone(
    mine: bytes | None, server: Server, tmp_path: Path
) -> None:
    serve(server)
    theirs = tmp_path / "mine" / "tiny" / "tiny.arff"
    theirs.parent.mkdir(parents=True)
    theirs.mkdir() if mine is None else theirs.write_bytes(mine)
    with pytest.raises(DataError, match=f"{theirs}: .* is left alone; move it away|is empty"):
        fetch(entry(server.url), folder=tmp_path / "mine")
    assert server.asked == []
    assert theirs.is_dir() if mine is None else theirs.read_bytes() == mine


def test_files_beside_the_fetched_ones_are_left_alone(server: Server, tmp_path: Path) -> None:
    serve(server, WRONG, ARFF)
    beside = tmp_path / "mine" / "tiny" / "tmp-of-mine-tiny.arff"
    beside.parent.mkdir(parents=True)
    beside.write_text("mine")
    fetch(entry(server.url), folder=tmp_path / "mine", wait=0)
    assert beside.read_text() == "mine"
    assert left_behind(tmp_path / "mine") == ["tiny.arff", "tiny.xml", beside.name]


def test_a_link_where_a_file_is_fetched_is_not_followed(server: Server, tmp_path: Path) -> None:
    serve(server)
    (tmp_path / "theirs").write_text("mine")
    (fetched_folder() / "tiny").mkdir(parents=True)
    (fetched_folder() / "tiny" / "tiny.arff").symlink_to(tmp_path / "theirs")
    with pytest.warns(DataWarning, match="fetched again"):
        assert fetch(entry(server.url))[0].read_bytes() == ARFF
    assert (tmp_path / "theirs").read_text() == "mine"


WRONG = ARFF.replace(b"1,1", b"9,9")
FAULTS = {
    "other content": [WRONG],
    "too long": [ARFF + b"3,1\n" * 1000],
    "too short": [ARFF[:-5]],
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_wrong_checksum_is_reported_and_nothing_is_left(
    case: str, server: Server, tmp_path: Path
) -> None:
    serve(server, *FAULTS[case])
    with pytest.raises(DataError, match=r"tiny\.arff failed its checksum and was deleted"):
        fetch(entry(server.url), folder=tmp_path / "mine", wait=0)
    assert left_behind(tmp_path / "mine") == []
    assert server.asked == ["/tiny/tiny.arff"] * 3


@pytest.mark.parametrize("first", [503, WRONG, (ARFF[:20], len(ARFF))], ids=["503", "wrong", "cut"])
def test_a_failure_is_tried_again(first: object, server: Server, tmp_path: Path) -> None:
    serve(server, first, ARFF)
    paths = fetch(entry(server.url), folder=tmp_path / "mine", wait=0)
    assert paths[0].read_bytes() == ARFF
    assert left_behind(tmp_path / "mine") == ["tiny.arff", "tiny.xml"]


def test_a_broken_connection_is_a_sentence(server: Server, tmp_path: Path) -> None:
    serve(server, (ARFF[:20], len(ARFF)))
    with pytest.raises(DataError, match=r"broke off .* D2ACE_DATA"):
        fetch(entry(server.url), folder=tmp_path / "mine", wait=0)
    assert left_behind(tmp_path / "mine") == []


def test_a_file_that_is_not_there_is_not_asked_for_again(server: Server) -> None:
    with pytest.raises(DataError, match=r"answered 404 for .*tiny\.arff; run: .*D2ACE_DATA"):
        fetch(entry(server.url), wait=0)
    assert len(server.asked) == 1


def test_offline(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound but not listening: nobody else can answer there
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        mine = fetched_folder() / "tiny" / "tiny.arff"
        mine.parent.mkdir(parents=True)
        mine.write_bytes(WRONG)
        with (
            pytest.warns(DataWarning, match="is damaged"),
            pytest.raises(DataError, match=r"cannot be reached .*are you online\?") as caught,
        ):
            fetch(entry(address), retries=2, wait=0)
    assert "\n" not in str(caught.value)
    assert mine.read_bytes() == WRONG  # what was there stays until there is something better


def test_a_mirror_is_asked_instead(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(server)
    monkeypatch.setenv("D2ACE_MIRROR", server.url + "/")
    assert fetch(entry("http://127.0.0.1:9"))[0].read_bytes() == ARFF
    monkeypatch.setenv("D2ACE_MIRROR", "nonsense")
    with pytest.raises(DataError, match="not a usable address"):
        fetch(entry(server.url), folder=fetched_folder() / "elsewhere")


def test_a_failed_download_says_why() -> None:
    with pytest.raises(DataError, match=r"'rcv1subset1': the files cannot be fetched \(no address"):
        fetch("rcv1subset1")
    with pytest.raises(UnknownDataError, match="did you mean 'yeast'"):
        fetch("yeats")
    with pytest.raises(UnknownDataError, match="retries=0"):
        fetch("yeast", retries=0)


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    serve(server)
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        fetch(entry(server.url), folder=tmp_path / "occupied")


def test_named_datasets_are_loaded_from_what_was_fetched(
    server: Server, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("flags.arff", "flags.xml"):
        server.replies[f"/flags/{name}"] = [(data_root / "flags" / name).read_bytes()]
    monkeypatch.setenv("D2ACE_MIRROR", server.url)
    with pytest.raises(DataError, match="run: d2ace data fetch flags"):
        load("flags")
    paths = fetch("flags")
    assert load("flags").n == 194
    for path in paths:  # the data, and the list of its labels
        good = path.read_bytes()
        path.write_bytes(good.replace(b"red", b"rad") + b"\n")
        with pytest.raises(DataError, match=f"{path}: is damaged: .*run: d2ace data fetch flags"):
            load("flags")
        with pytest.warns(DataWarning, match=f"{path}: is damaged .* is fetched again"):
            fetch("flags")
        assert path.read_bytes() == good
        assert load("flags").n == 194
