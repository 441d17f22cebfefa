"""Where data sets lie, what the official ones are, and how to get them.

A set lies below the ``root`` of its component, else ``$ECGR_DATA``, else the user's data folder. Files are read once
and hashed; every complaint names file and place.

Content hashes are of the unpacked file, so that a .gz packed again is still official; download hashes are of the
archive as it is served. They are the ones in public use: torchvision's MD5 of CIFAR-100's batches, and for the others
values on which independent public projects agree. Those of heart disease are of files with a header line (X1 to X14)
and -9 for what is missing, which hold the values of UCI's processed files.
"""

import gzip
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from ecgr.errors import ConfigError, DataError, EnvironmentFault, missing_extra
from ecgr.files import flush
from ecgr.tasks.data.dataset import Dataset


def data_root(root: str | None = None) -> Path:
    """The folder that holds the data sets.

    >>> data_root("/srv/data").as_posix()
    '/srv/data'
    """
    chosen = root or os.environ.get("ECGR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path  # needed only where nobody says where the data is

    return user_data_path("ecgr", appauthor=False)


def known_folder(name: str, root: str | None, get_it: str | None = None) -> Path:
    """The folder of a known set; a `DataError` if it is not there."""
    base = data_root(root)
    folder = base / OFFICIAL[name].folder
    if not folder.is_dir():
        raise missing(name, f"{OFFICIAL[name].folder}/", base, get_it or f"run `ecgr data fetch {name}`")
    return folder


def missing(name: str, what: str, where: Path, get_it: str) -> DataError:
    """The error for a set that is not there."""
    return DataError(f"{name}: no {what} in {where}; {get_it}, or set data.root or ECGR_DATA to the folder that has it")


KINDS: Mapping[str, Callable[[Path], bool]] = {"there": Path.exists, "a file": Path.is_file, "a folder": Path.is_dir}


def own_path(name: str, root: str | None, needs: str, kind: str = "there") -> Path:
    """The user's own file or folder that ``root`` names."""
    if root is None:
        raise ConfigError(f"data.root: {name} needs {needs}")
    path = Path(root).expanduser()
    if not KINDS[kind](path):
        raise DataError(f"{name}: {path} is not {kind}; set data.root to {needs}")
    return path


def read_file(path: Path, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes, unpacked if it ends in .gz."""
    try:
        with path.open("rb") as plain, gzip.open(plain) if path.suffix == ".gz" else nullcontext(plain) as file:
            bound = most if file is not plain else min(most, path.stat().st_size)  # memory is set aside for all of it
            try:
                content = file.read(bound + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{path}: damaged near byte {plain.tell():,} ({error}); get it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise DataError(f"{path}: has more than {most:,} bytes")
    return content


def read_text(path: Path) -> tuple[str, str]:
    """The UTF-8 text of a file, with or without a byte-order mark, and its SHA-256."""
    content = read_file(path, 256 << 20)
    try:
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text at byte {error.start:,}; save it as UTF-8") from None


def check_length(path: Path, content: bytes, expected: int) -> None:
    """Refuse a file that is cut off or goes on."""
    if len(content) < expected:
        raise DataError(f"{path}: ends at byte {len(content):,}, at least {expected:,} were expected; get it again")
    if len(content) > expected:
        raise DataError(f"{path}: goes on after byte {expected}, where it should end; get it again")


@dataclass(frozen=True, slots=True)
class Official:
    """What is known of a data set as its authors give it out.

    Attributes:
        folder: where its files are, below the data folder.
        content: hash of each data file's content, "sha256:…" or "md5:…", by file name.
        train: number of training images; 0 where the set is not split by its authors.
        test: number of test images, likewise.
        unhashed: files of ``folder`` beside those.
        downloads: SHA-256 of what `fetch` gets, by name: the files themselves, or an archive of ``folder``.
        mirrors: the addresses below which the downloads are, best first.
    """

    folder: str
    content: Mapping[str, str]
    train: int = 0
    test: int = 0
    unhashed: tuple[str, ...] = ()
    downloads: Mapping[str, str] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()


class KnownFiles:
    """The files of a known set on disk: their SHA-256, and which have other bytes than the official ones."""

    def __init__(self, name: str, root: str | None) -> None:
        self.name, self.folder, self.official = name, known_folder(name, root), OFFICIAL[name]
        self.sha256: dict[str, str] = {}
        self.altered: list[str] = []

    def read(self, file: str, most: int = 512 << 20) -> tuple[Path, bytes]:
        """Where a file lies, plain or as .gz, and its content."""
        path = _found(self.folder, file)
        if path is None:
            raise DataError(
                f"{self.name}: {self.folder / file} is missing, the rest of the set is there;"
                f" `ecgr data fetch {self.name}` adds what is missing"
            )
        content = read_file(path, most)
        self.sha256[file] = hashlib.sha256(content).hexdigest()
        algorithm, _, known = self.official.content.get(file, "").partition(":")
        if known and hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() != known:
            self.altered.append(file)
        return path, content


def _found(folder: Path, file: str) -> Path | None:
    """The file, plain or packed, if it is there."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def compared(name: str, dataset: Dataset, altered: Iterable[str] | None = None) -> Dataset:
    """A set that was read whole, with its status beside the official one, noted unless it is the official one.

    ``altered`` are the files with other bytes; by default those of another SHA-256.
    """
    official = OFFICIAL[name]
    if altered is None:
        altered = (file for file, found in dataset.files.items() if official.content.get(file) != f"sha256:{found}")
    of_images = official.train > 0
    sizes = (
        [("training images", len(dataset.train), official.train), ("test images", len(dataset.test), official.test)]
        if of_images
        else [("files", len(dataset.files), len(official.content))]
    )
    for what, have, known in sizes:
        if have > known:
            raise DataError(f"{name}: {have:,} {what}, the official set has {known:,}; this is another set")
    status, others = "official", ", ".join(sorted(altered))
    notes = [f"reduced: {have:,} of {known:,} {what}" for what, have, known in sizes if have < known]
    if notes:
        status = "reduced"
    elif others:
        status = "reordered" if of_images else "whole"
        notes = [f"{status}: {'as many images as the official set, ' if of_images else ''}other bytes in {others}"]
    return replace(dataset, status=status, notes=(*notes, *dataset.notes))


def fetch(name: str, root: str | None = None) -> Path:
    """Download the files of a set that are not there yet, and return their folder.

    What arrives is checked against a known hash, in a temporary folder beside the final place: an interruption leaves
    nothing that could be taken for a data set. Files that are already there are never overwritten.

    Raises:
        ConfigError: there is no such set, or it cannot be fetched.
        DataError: what the mirrors give is not the official file.
        EnvironmentFault: no mirror can be reached, or the disk refuses.
    """
    fetchable = [key for key, official in OFFICIAL.items() if official.downloads]
    if name not in fetchable:
        raise ConfigError(
            f"data.name: {name} cannot be fetched; these can: {', '.join(fetchable)};"
            " docs/reference/datasets.md says how to get others"
        )
    official, base = OFFICIAL[name], data_root(root)
    folder = base / official.folder
    absent = [file for file in (*official.content, *official.unhashed) if _found(folder, file) is None]
    if not absent:
        return folder
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=base) as temporary:
            arrived = Path(temporary) / official.folder
            for file, sha256 in official.downloads.items():
                if file.endswith(".tar.gz"):
                    _unpack(_download(file, sha256, official.mirrors, Path(temporary)))
                elif file.removesuffix(".gz") in absent:
                    _download(file, sha256, official.mirrors, arrived)
            files = [_found(arrived, file) for file in absent]
            if None in files:
                raise DataError(f"{name}: no {absent[files.index(None)]} in what was downloaded; nothing was kept")
            folder.mkdir(parents=True, exist_ok=True)
            for path in filter(None, files):
                flush(path)
                path.replace(folder / path.name)
    except OSError as error:
        raise EnvironmentFault(f"{base}: cannot be written to ({error.strerror or error})") from None
    return folder


def _download(file: str, sha256: str, mirrors: Iterable[str], folder: Path) -> Path:
    """Try the mirrors in order until one gives the file with the known hash."""
    try:
        import pooch  # an optional dependency
        from requests import RequestException  # comes with pooch
    except ImportError:
        raise missing_extra("fetching data", "data") from None
    failures, altered = [], False
    for mirror in mirrors:
        url, bar = f"{mirror}{file}", find_spec("tqdm") is not None
        try:
            return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=file, path=folder, progressbar=bar))
        except ValueError:
            altered = True
            failures.append(f"{url} gives a file with another hash")
        except RequestException as error:
            failures.append(f"{url} fails ({type(error).__name__})")
    message = f"{file}: download failed: {'; '.join(failures)}"
    if altered:
        raise DataError(f"{message}; nothing was kept")
    raise EnvironmentFault(f"{message}; check the network, or put the files there by hand")


def _unpack(archive: Path) -> None:
    """Beside itself; one with an entry that leads out, or is neither file nor folder, is refused."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(archive.parent, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name}: damaged or unsafe archive ({error}); nothing was kept") from None


def _idx(folder: str, content: Mapping[str, str], packed: Iterable[str], *mirrors: str) -> Official:
    downloads = {f"{file}.gz": sha256 for file, sha256 in zip(content, packed, strict=True)}
    return Official(folder, content, 60_000, 10_000, downloads=downloads, mirrors=mirrors)


def _cifar(folder: str, content: Mapping[str, str], names: str, archive: str, sha256: str) -> Official:
    mirrors = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
    return Official(folder, content, 50_000, 10_000, (names,), {archive: sha256}, mirrors)


TINY_SHAKESPEARE = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

OFFICIAL: Mapping[str, Official] = {
    "mnist": _idx(
        "MNIST/raw",
        {
            "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion_mnist": _idx(
        "FashionMNIST/raw",
        {
            "train-images-idx3-ubyte": "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "md5:9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "md5:8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "md5:15d484375f8d13e6eb1aabb0c3f46965",
        },
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    "cifar10": _cifar(
        "cifar-10-batches-py",
        {
            "data_batch_1": "sha256:54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
            "data_batch_2": "sha256:766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
            "data_batch_3": "sha256:0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
            "data_batch_4": "sha256:3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
            "data_batch_5": "sha256:d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
            "test_batch": "sha256:f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        },
        "batches.meta",
        "cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar100": _cifar(
        "cifar-100-python",
        {"train": "md5:16019d7e3df5f24257cddd939b257f8d", "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"},
        "meta",
        "cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    "heart_disease": Official(
        "heart-disease",
        {
            "processed.cleveland.data": "sha256:a8a74af09afc967d70c5564d46f2211aedddb00e0498ff1ebf91b0de03b729aa",
            "processed.hungarian.data": "sha256:753e06f36272bcd2b7d8366f3414682e7b5c1d731c4a7957d1a4da67c822633b",
            "processed.switzerland.data": "sha256:eff77adf92b1cb7c01de5e4a8051734b8d368463d16ce591ca51fca79191f6e2",
            "processed.va.data": "sha256:3b4d4e3eb2d460196afcf21778b62e63dde0986fcfdb52004fce2620cc8e7f58",
        },
    ),
    "shakespeare": Official(
        "tiny-shakespeare",
        {"input.txt": f"sha256:{TINY_SHAKESPEARE}"},
        downloads={"input.txt": TINY_SHAKESPEARE},
        mirrors=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
    ),
}
