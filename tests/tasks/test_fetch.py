"""Fetching, against a server on this machine: mirrors in order, hashes first, nothing half there."""

import gzip
import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.tasks.data.fetch import fetch, verify
from ecgr.tasks.data.official import Download, OfficialSet
from support.image_sets import idx_files, write_cifar10


@dataclass
class Server:
    """Serves ``files`` by path, cuts off those in ``cut``, and remembers what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    serving = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            serving.asked.append(self.path)
            content = serving.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write((content or b"")[: 10 if self.path in serving.cut else None])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        serving.address = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        http.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def small_mnist(server: Server) -> OfficialSet:
    """Two mirrors, one and two, of the four packed files of a small MNIST."""
    downloads = []
    for name, content in idx_files().items():
        packed = gzip.compress(content, mtime=0)
        server.files[f"/one/{name}.gz"] = server.files[f"/two/{name}.gz"] = packed
        mirrors = tuple(f"{server.address}/{mirror}/{name}.gz" for mirror in ("one", "two"))
        downloads.append(Download(f"{name}.gz", sha256(packed), mirrors))
    return OfficialSet(40, 20, {}, "MNIST/raw", tuple(downloads))


def archive(*entries: tarfile.TarInfo, folder: Path | None = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        if folder is not None:
            tar.add(folder, folder.name)
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return stream.getvalue()


def small_cifar(server: Server, content: bytes, known: str | None = None) -> OfficialSet:
    server.files["/cifar.tar.gz"] = content
    download = Download("cifar.tar.gz", known or sha256(content), (f"{server.address}/cifar.tar.gz",))
    members = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")
    return OfficialSet(100, 20, {}, "cifar-10-batches-py", (download,), members)


def get(name: str, root: Path, official: OfficialSet) -> Path:
    return fetch(name, str(root), progress=False, registry={name: official})


def left_in(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} if root.exists() else set()


def test_files_are_fetched_and_can_be_read(tmp_path: Path, server: Server) -> None:
    root = tmp_path / "new" / "data"
    folder = get("mnist", root, small_mnist(server))
    assert folder == root / "MNIST/raw"
    assert left_in(root) == {f"MNIST/raw/{name}.gz" for name in idx_files()}
    assert verify("mnist", str(root)).counts == {"train": 40, "test": 20}
    assert all(path.startswith("/one/") for path in server.asked)


def test_an_archive_is_fetched_and_can_be_read(tmp_path: Path, server: Server) -> None:
    made = write_cifar10(tmp_path / "made")
    folder = get("cifar10", tmp_path / "data", small_cifar(server, archive(folder=made)))
    for path in made.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in (tmp_path / "data").iterdir()] == [folder.name]
    assert verify("cifar10", str(tmp_path / "data")).counts == {"train": 100, "test": 20}


def test_what_is_there_is_neither_fetched_nor_overwritten(tmp_path: Path, server: Server) -> None:
    official = small_mnist(server)
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(b"mine")
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"mine too")
    get("mnist", tmp_path, official)
    assert sorted(server.asked) == ["/one/t10k-images-idx3-ubyte.gz", "/one/train-labels-idx1-ubyte.gz"]
    assert (folder / "train-images-idx3-ubyte").read_bytes() == b"mine"
    assert (folder / "t10k-labels-idx1-ubyte.gz").read_bytes() == b"mine too"
    server.asked.clear()
    get("mnist", tmp_path, official)
    assert server.asked == []


def test_the_second_mirror_helps_where_the_first_fails(tmp_path: Path, server: Server) -> None:
    official = small_mnist(server)
    del server.files["/one/train-images-idx3-ubyte.gz"]
    server.files["/one/train-labels-idx1-ubyte.gz"] = b"an altered file"
    server.cut.add("/one/t10k-images-idx3-ubyte.gz")
    get("mnist", tmp_path, official)
    assert verify("mnist", str(tmp_path)).counts == {"train": 40, "test": 20}
    assert sum(path.startswith("/two/") for path in server.asked) == 3


def test_a_wrong_hash_everywhere_is_a_data_error_and_leaves_nothing(tmp_path: Path, server: Server) -> None:
    official = small_mnist(server)
    for mirror in ("one", "two"):
        server.files[f"/{mirror}/train-images-idx3-ubyte.gz"] = b"an altered file"
    with pytest.raises(DataError, match=r"train-images.*another hash.*another hash.*nothing was kept") as caught:
        get("mnist", tmp_path, official)
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path) == set()


def test_no_mirror_is_the_environment(tmp_path: Path, server: Server) -> None:
    official = small_mnist(server)
    server.files.clear()
    with pytest.raises(EnvironmentFault, match=r"/one/.*HTTPError.*/two/.*HTTPError.*check the network"):
        get("mnist", tmp_path, official)
    assert left_in(tmp_path) == set()


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, server: Server) -> None:
    official = small_mnist(server)
    for mirror in ("one", "two"):
        server.cut.add(f"/{mirror}/t10k-labels-idx1-ubyte.gz")
    with pytest.raises((DataError, EnvironmentFault)):
        get("mnist", tmp_path, official)
    assert "MNIST/raw/t10k-labels-idx1-ubyte.gz" not in left_in(tmp_path)
    assert not [path for path in left_in(tmp_path) if path.startswith(".fetch")]


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return made


TRICKS = {
    "leads up": entry("cifar-10-batches-py/../../escaped"),
    "absolute": entry("/tmp/escaped"),
    "symbolic link": entry("cifar-10-batches-py/data_batch_1", tarfile.SYMTYPE, "../../escaped"),
    "hard link": entry("cifar-10-batches-py/data_batch_1", tarfile.LNKTYPE, "/etc/passwd"),
    "device": entry("cifar-10-batches-py/data_batch_1", tarfile.CHRTYPE),
    "pipe": entry("cifar-10-batches-py/data_batch_1", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_an_archive_that_plays_tricks_is_refused(tmp_path: Path, server: Server, trick: tarfile.TarInfo) -> None:
    content = archive(trick, folder=write_cifar10(tmp_path / "made", per_batch=2))
    with pytest.raises(DataError, match=r"cifar\.tar\.gz: refused, its entry"):
        get("cifar10", tmp_path / "outer" / "data", small_cifar(server, content))
    assert left_in(tmp_path / "outer") == set()


def test_an_archive_without_a_member_or_cut_off_is_named(tmp_path: Path, server: Server) -> None:
    folder = write_cifar10(tmp_path / "made", per_batch=2)
    whole = archive(folder=folder)
    (folder / "data_batch_4").unlink()
    with pytest.raises(DataError, match="has no cifar-10-batches-py/data_batch_4"):
        get("cifar10", tmp_path / "data", small_cifar(server, archive(folder=folder)))
    for content in (whole[: len(whole) // 2], b"not an archive"):
        with pytest.raises(DataError, match="damaged archive"):
            get("cifar10", tmp_path / "data", small_cifar(server, content))
    assert left_in(tmp_path / "data") == set()


def test_files_that_nobody_asked_for_are_left_in_the_archive(tmp_path: Path, server: Server) -> None:
    content = archive(entry("cifar-10-batches-py/extra.py"), folder=write_cifar10(tmp_path / "made", per_batch=2))
    folder = get("cifar10", tmp_path / "data", small_cifar(server, content))
    assert not (folder / "extra.py").exists()


@pytest.mark.parametrize("name", ["lc25000", "image_folder", "digits"])
def test_what_cannot_be_fetched_is_said_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be fetched.*these can: mnist") as caught:
        fetch(name, str(tmp_path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no data set 'imagenet'"):
        fetch("imagenet", str(tmp_path))


def test_without_pooch_the_message_says_what_to_install(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'data': pip install 'pillow"):
        get("mnist", tmp_path, small_mnist(server))


def test_a_place_that_cannot_be_written_is_the_environment(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFault, match="cannot be written to"):
        get("mnist", tmp_path / "file", small_mnist(server))


def test_progress_is_shown_on_stderr_if_wanted(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("mnist", str(tmp_path), progress=True, registry={"mnist": small_mnist(server)})
    assert capsys.readouterr().out == ""
