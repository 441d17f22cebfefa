"""Where data sets lie, how they compare with the official ones, and fetching them from a server on this machine."""

import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.tasks.data import DATASETS, LC25000, Mnist, available, fetch, verify
from ecgr.tasks.data.sets import OFFICIAL, Official, data_root
from ecgr.tasks.partition import PARTITIONERS
from support.image_sets import idx_files, write_cifar10, write_cifar100, write_idx


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


def small_mnist(server: Server) -> Official:
    """Two mirrors, one and two, of the four packed files of a small MNIST."""
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in idx_files().items()}
    mirrors = (f"{server.address}/one/", f"{server.address}/two/")
    server.files |= {f"/{mirror}/{name}": content for name, content in packed.items() for mirror in ("one", "two")}
    content = {name: f"sha256:{sha256(file)}" for name, file in idx_files().items()}
    downloads = {name: sha256(content) for name, content in packed.items()}
    return Official("MNIST/raw", content, 40, 20, downloads=downloads, mirrors=mirrors)


def archive(*entries: tarfile.TarInfo, folder: Path | None = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        if folder is not None:
            tar.add(folder, folder.name)
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return stream.getvalue()


def small_cifar(server: Server, content: bytes) -> Official:
    server.files["/cifar.tar.gz"] = content
    members = {**{f"data_batch_{number}": "sha256:" for number in range(1, 6)}, "test_batch": "sha256:"}
    downloads = {"cifar.tar.gz": sha256(content)}
    return Official("cifar-10-batches-py", members, 100, 20, ("batches.meta",), downloads, (f"{server.address}/",))


def get(name: str, root: Path, official: Official) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OFFICIAL, name, official)
        return fetch(name, str(root))


def left_in(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} if root.exists() else set()


def test_files_are_fetched_and_can_be_read(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "new" / "data"
    folder = get("mnist", root, small_mnist(server))
    assert folder == root / "MNIST/raw"
    assert left_in(root) == {f"MNIST/raw/{name}.gz" for name in idx_files()}
    assert verify("mnist", str(root)).counts == {"train": 40, "test": 20}
    assert all(path.startswith("/one/") for path in server.asked)
    assert capsys.readouterr().out == ""


def test_an_archive_is_fetched_and_can_be_read(tmp_path: Path, server: Server) -> None:
    made = write_cifar10(tmp_path / "made")
    content = archive(entry("cifar-10-batches-py/nobody-asked.py"), folder=made)
    folder = get("cifar10", tmp_path / "data", small_cifar(server, content))
    assert not (folder / "nobody-asked.py").exists()
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


def test_mirrors_that_fail(tmp_path: Path, server: Server) -> None:
    """The second helps where the first fails; a wrong hash everywhere is the data's fault, no answer the network's."""
    official = small_mnist(server)
    del server.files["/one/train-images-idx3-ubyte.gz"]
    server.files["/one/train-labels-idx1-ubyte.gz"] = b"an altered file"
    server.cut.add("/one/t10k-images-idx3-ubyte.gz")
    get("mnist", tmp_path / "one", official)
    assert verify("mnist", str(tmp_path / "one")).counts == {"train": 40, "test": 20}
    assert sum(path.startswith("/two/") for path in server.asked) == 3
    server.files["/two/train-labels-idx1-ubyte.gz"] = b"an altered file"
    with pytest.raises(DataError, match=r"^train-labels.*another hash.*another hash.*nothing was kept[^\n]*$"):
        get("mnist", tmp_path / "two", official)
    server.files.clear()
    with pytest.raises(EnvironmentFault, match=r"/one/.*HTTPError.*/two/.*HTTPError.*check the network"):
        get("mnist", tmp_path / "two", official)
    assert left_in(tmp_path / "two") == set()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return made


TRICKS = {
    "leads up": entry("cifar-10-batches-py/../../escaped"),
    "symbolic link": entry("cifar-10-batches-py/data_batch_1", tarfile.SYMTYPE, "../../escaped"),
    "hard link": entry("cifar-10-batches-py/data_batch_1", tarfile.LNKTYPE, "/etc/passwd"),
    "device": entry("cifar-10-batches-py/data_batch_1", tarfile.CHRTYPE),
    "pipe": entry("cifar-10-batches-py/data_batch_1", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
def test_an_archive_that_plays_tricks_is_refused(tmp_path: Path, server: Server, trick: tarfile.TarInfo) -> None:
    content = archive(trick, folder=write_cifar10(tmp_path / "made", per_batch=2))
    with pytest.raises(DataError, match=r"cifar\.tar\.gz: damaged or unsafe archive"):
        get("cifar10", tmp_path / "outer" / "data", small_cifar(server, content))
    assert left_in(tmp_path / "outer") == set()


def test_an_archive_without_a_member_or_cut_off_is_named(tmp_path: Path, server: Server) -> None:
    folder = write_cifar10(tmp_path / "made", per_batch=2)
    whole = archive(folder=folder)
    (folder / "data_batch_4").unlink()
    with pytest.raises(DataError, match="no data_batch_4 in what was downloaded"):
        get("cifar10", tmp_path / "data", small_cifar(server, archive(folder=folder)))
    for content in (whole[: len(whole) // 2], b"not an archive"):
        with pytest.raises(DataError, match="damaged or unsafe archive"):
            get("cifar10", tmp_path / "data", small_cifar(server, content))
    assert left_in(tmp_path / "data") == set()


def test_what_cannot_be_fetched_is_said_in_one_line(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lc25000", "imagenet"):
        with pytest.raises(ConfigError, match=rf"^data\.name: {name} cannot be fetched.*these can: mnist[^\n]*$"):
            fetch(name, str(tmp_path))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFault, match="cannot be written to"):
        get("mnist", tmp_path / "file", small_mnist(server))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'data': pip install 'pandas"):
        get("mnist", tmp_path, small_mnist(server))


def test_the_official_sets_are_known_by_content_not_by_packing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    files = idx_files()
    official = small_mnist(server)
    monkeypatch.setitem(OFFICIAL, "mnist", official)
    write_idx(tmp_path / "plain", files)
    write_idx(tmp_path / "packed", files, packed=True)
    for form in ("plain", "packed"):
        assert verify("mnist", str(tmp_path / form)).details == ("official: every file has the official content",)
        assert Mnist(root=str(tmp_path / form)).load().notes == ()
    path = tmp_path / "plain" / "MNIST/raw/train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    note = "reordered: as many images as the official set, other bytes in train-images-idx3-ubyte"
    assert verify("mnist", str(tmp_path / "plain")).details == (note,)
    assert Mnist(root=str(tmp_path / "plain")).load().notes == (note,)
    md5 = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in files.items()}
    for changed, status in (({"content": md5}, "official"), ({"test": 21}, "reduced")):
        monkeypatch.setitem(OFFICIAL, "mnist", replace(official, **changed))
        assert verify("mnist", str(tmp_path / "packed")).status == status
    monkeypatch.setitem(OFFICIAL, "mnist", replace(official, train=39))
    with pytest.raises(DataError, match="has more than"):
        verify("mnist", str(tmp_path / "packed"))


def test_the_list_has_every_set_with_one_line_and_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECGR_DATA", raising=False)
    assert data_root().name == "ecgr"
    monkeypatch.setenv("ECGR_DATA", str(tmp_path))
    assert (data_root(), data_root("/srv/data")) == (tmp_path, Path("/srv/data"))
    write_cifar100(tmp_path)
    with pytest.raises(
        DataError, match=rf"^mnist: no MNIST/raw/ in {tmp_path}; run `ecgr data fetch mnist`, or set data"
    ):
        Mnist().load()
    with pytest.raises(
        DataError, match=r"lung_colon_image_set/ with .* \(it cannot be fetched\), or set data.root or ECGR"
    ):
        LC25000().load()
    with pytest.raises(ConfigError, match="'cifar'; there are: digits, mnist"):
        verify("cifar")
    rows = {row.name: row for row in available()}
    assert list(rows) == list(DATASETS)
    assert all(row.description and "\n" not in row.description for row in rows.values())
    found = {name: row.place for name, row in rows.items() if row.place}
    assert found == {"digits": "installed", "cifar100": str(tmp_path / "cifar-100-python")}


def test_the_table_is_complete() -> None:
    """Hashes have their length, and what is fetched is what is read."""
    for official in OFFICIAL.values():
        assert all(re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", known) for known in official.content.values())
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in official.downloads.values())
        assert all(url.startswith("http") and url.endswith("/") for url in official.mirrors)
        if not any(file.endswith(".tar.gz") for file in official.downloads) and official.downloads:
            assert [file.removesuffix(".gz") for file in official.downloads] == list(official.content)
    assert set(OFFICIAL) == {"mnist", "fashion_mnist", "cifar10", "cifar100", "heart_disease", "shakespeare"}


def test_the_tables_hold_every_name_of_the_contract() -> None:
    images = ["digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "image_folder", "lc25000"]
    assert list(DATASETS) == [*images, "arrays", "csv", "text", "heart_disease", "shakespeare", "site"]
    assert list(PARTITIONERS) == ["iid", "dirichlet", "shards", "quantity", "groups"]


def test_importing_it_loads_nothing_heavy() -> None:
    """Measured by what is imported, which does not depend on how busy the machine is."""
    heavy = ["torch", "PIL", "pooch", "requests", "sklearn", "scipy", "rich", "filelock", "platformdirs"]
    code = f"import sys, ecgr.tasks.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
