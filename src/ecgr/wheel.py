"""The package as a wheel, made of the very files that run here, so that every machine of a federation runs the same."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import distribution, distributions
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ecgr._version import __version__

WHEEL = f"ecgr-{__version__}-py3-none-any.whl"
MADE = (1980, 1, 1, 0, 0, 0)


def pack_wheel(experiments: Mapping[str, Path]) -> tuple[bytes, str]:
    """The wheel with these named experiments, and its SHA-256: the same wherever the same files are."""
    ours, root, info = distribution("ecgr"), Path(__file__).parent, f"ecgr-{__version__}.dist-info"
    content = {f"ecgr/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}
    content |= {f"ecgr/experiments/{name}.toml": path.read_bytes() for name, path in experiments.items()}
    content = {name: data for name, data in sorted(content.items()) if not name.endswith(".pyc")}
    for name in ("METADATA", "WHEEL", "entry_points.txt"):
        content[f"{info}/{name}"] = (ours.read_text(name) or "").encode()
    hashes = {name: urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=") for name, data in content.items()}
    rows = [f"{name},sha256={hashes[name]},{len(data)}\n" for name, data in content.items()]
    content[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(ZipInfo(name, MADE), data, ZIP_DEFLATED)
    return packed.getvalue(), sha256(packed.getvalue()).hexdigest()


def versions() -> bytes:
    """The versions of all that is installed here, to be given to pip as constraints."""
    found = {each.name: each.version.partition("+")[0] for each in distributions() if each.name != "ecgr"}
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items())).encode()
