"""What the official files are: counts, hashes, where they can be had; and how a set on disk compares with them.

Content hashes are of the unpacked file, so that a .gz packed again is still official; download hashes are of the
archive as it is served. They are the ones in public use: torchvision's MD5 of CIFAR-100's batches, and for the others
values on which independent public projects agree. Those of heart disease are of files with a header line (X1 to X14)
and -9 for what is missing, which hold the values of UCI's processed files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.files import Digest

Status = Literal["official", "reordered", "reduced", "whole"]


@dataclass(frozen=True, slots=True)
class Download:
    """A file to fetch: its name, its SHA-256, and the addresses that serve it, best first."""

    file: str
    sha256: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OfficialSet:
    """What is known of a data set as its authors give it out.

    Attributes:
        train: number of training images; 0 where the set is not split by its authors.
        test: number of test images, likewise.
        content: hash of each data file's content, "sha256:…" or "md5:…", by file name.
        folder: where `fetch` puts the files, below the data folder.
        downloads: what `fetch` gets: the files themselves, or archives of them.
        members: files of ``folder`` that an archive must bring; empty where the downloads are the files.
    """

    train: int = 0
    test: int = 0
    content: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    downloads: tuple[Download, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are in ``folder`` when the set is there."""
        return self.members or tuple(download.file for download in self.downloads)


@dataclass(frozen=True, slots=True)
class Report:
    """How a set on disk compares with the official one.

    ``official``: every file has the official content. ``reordered``: as many images, other bytes, which is what
    shuffling gives; only the hash in the record can say which order. ``reduced``: fewer images. ``whole``: undamaged,
    with nothing official to compare with.
    """

    name: str
    status: Status
    details: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the record of a run should say."""
        return () if self.status == "official" else self.details


def assess(name: str, official: OfficialSet, digests: Mapping[str, Digest], train: int, test: int) -> Report:
    """Compare an undamaged set with the official one.

    >>> assess("cifar100", OfficialSet(50_000, 10_000), {}, 10_000, 10_000).details
    ('reduced: 10,000 of 50,000 training images',)
    """
    counts = {"train": train, "test": test}
    pairs = (("training", train, official.train), ("test", test, official.test))
    for kind, have, known in pairs:
        if have > known:
            raise DataError(f"{name}: {have:,} {kind} images, the official set has {known:,}; this is another set")
    fewer = tuple(f"reduced: {have:,} of {known:,} {kind} images" for kind, have, known in pairs if have < known)
    if fewer:
        return Report(name, "reduced", fewer, counts)
    unknown = sorted(set(digests) - set(official.content))
    if unknown:
        return Report(name, "whole", (f"whole: no official hash is known of {_listed(unknown)}",), counts)
    other = sorted(file for file, digest in digests.items() if not digest.matches(official.content[file]))
    if other:
        detail = f"reordered: as many images as the official set, other bytes in {_listed(other)}"
        return Report(name, "reordered", (detail,), counts)
    return Report(name, "official", ("official: every file has the official content",), counts)


def assess_files(name: str, official: OfficialSet, hashes: Mapping[str, str], counts: Mapping[str, int]) -> Report:
    """Compare a set that its authors do not split, by the SHA-256 of its files.

    >>> assess_files("x", OfficialSet(content={"a": "sha256:1", "b": "sha256:2"}), {"a": "1"}, {}).details
    ('reduced: 1 of 2 files: a',)
    """
    other = sorted(file for file, found in hashes.items() if official.content.get(file) != f"sha256:{found}")
    if other:
        return Report(name, "whole", (f"whole: other bytes than the known file in {_listed(other)}",), counts)
    if len(hashes) < len(official.content):
        detail = f"reduced: {len(hashes)} of {len(official.content)} files: {_listed(hashes)}"
        return Report(name, "reduced", (detail,), counts)
    return Report(name, "official", ("official: every file has the known content",), counts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _idx(content: Mapping[str, str], packed: Mapping[str, str], mirrors: tuple[str, ...], folder: str) -> OfficialSet:
    downloads = tuple(
        Download(f"{file}.gz", sha256, tuple(f"{mirror}{file}.gz" for mirror in mirrors))
        for file, sha256 in packed.items()
    )
    return OfficialSet(60_000, 10_000, content, folder, downloads)


def _cifar(archive: str, sha256: str, folder: str, content: Mapping[str, str], meta: str) -> OfficialSet:
    mirrors = (f"https://www.cs.toronto.edu/~kriz/{archive}", f"https://cave.cs.toronto.edu/kriz/{archive}")
    return OfficialSet(50_000, 10_000, content, folder, (Download(archive, sha256, mirrors),), (*content, meta))


TINY_SHAKESPEARE = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

OFFICIAL: Mapping[str, OfficialSet] = {
    "mnist": _idx(
        content={
            "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        packed={
            "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        folder="MNIST/raw",
    ),
    "fashion_mnist": _idx(
        content={
            "train-images-idx3-ubyte": "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "md5:9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "md5:8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "md5:15d484375f8d13e6eb1aabb0c3f46965",
        },
        packed={
            "train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        folder="FashionMNIST/raw",
    ),
    "cifar10": _cifar(
        archive="cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        folder="cifar-10-batches-py",
        content={
            "data_batch_1": "sha256:54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
            "data_batch_2": "sha256:766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
            "data_batch_3": "sha256:0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
            "data_batch_4": "sha256:3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
            "data_batch_5": "sha256:d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
            "test_batch": "sha256:f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        },
        meta="batches.meta",
    ),
    "cifar100": _cifar(
        archive="cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        folder="cifar-100-python",
        content={
            "train": "md5:16019d7e3df5f24257cddd939b257f8d",
            "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        meta="meta",
    ),
    "heart_disease": OfficialSet(
        content={
            "processed.cleveland.data": "sha256:a8a74af09afc967d70c5564d46f2211aedddb00e0498ff1ebf91b0de03b729aa",
            "processed.hungarian.data": "sha256:753e06f36272bcd2b7d8366f3414682e7b5c1d731c4a7957d1a4da67c822633b",
            "processed.switzerland.data": "sha256:eff77adf92b1cb7c01de5e4a8051734b8d368463d16ce591ca51fca79191f6e2",
            "processed.va.data": "sha256:3b4d4e3eb2d460196afcf21778b62e63dde0986fcfdb52004fce2620cc8e7f58",
        },
        folder="heart-disease",
    ),
    "shakespeare": OfficialSet(
        content={"input.txt": f"sha256:{TINY_SHAKESPEARE}"},
        folder="tiny-shakespeare",
        downloads=(
            Download(
                "input.txt",
                TINY_SHAKESPEARE,
                ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
            ),
        ),
    ),
}


class KnownSet:
    """What a reader of such a set has beside its own ``read``."""

    __slots__ = ()

    def read(self) -> tuple[Dataset, Report]:
        raise NotImplementedError

    def load(self) -> Dataset:
        return self.read()[0]

    def assess(self) -> Report:
        return self.read()[1]


def with_report(name: str, dataset: Dataset) -> tuple[Dataset, Report]:
    """A set that its authors do not split, its notes beginning with how its files compare with the known ones."""
    report = assess_files(name, OFFICIAL[name], dataset.files, dataset.counts)
    return replace(dataset, notes=(*report.notes, *dataset.notes)), report
