"""The identity of user code: the same in every process, another after any edit that may decide a number."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ecgr.code import Code, code_of

Write = Callable[..., ModuleType]
NUMBERS = count()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Imports a file of this content under a name that stays the same, from another folder each time."""

    def written(content: str, **helpers: str) -> ModuleType:
        folder = tmp_path / str(next(NUMBERS))
        folder.mkdir()
        for name, text in {"mine": content, **helpers}.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(folder))
        return __import__("mine")

    yield written
    for name in ("mine", "helper"):
        sys.modules.pop(name, None)


def code(write: Write, content: str, **helpers: str) -> Code:
    return code_of(write(content, **helpers).make)


EDITS: dict[str, str | tuple[str, str, str]] = {
    "a function": "def make(): return {}",
    "a lambda": "make = lambda: {}",
    "a lambda or a def": ("{}", "make = lambda: 1", "def make(): return 2"),
    "a default": "def make(x={}): return x",
    "a default by name": "def make(*, x={}): return x",
    "what it calls": "def part(): return {}\ndef make(): return part()",
    "what that calls": "def a(): return {}\ndef b(): return a()\ndef make(): return b()",
    "a nested function": "def make():\n    def inner(): return {}\n    return inner",
    "a class that it makes": "class Net:\n    def act(self): return {}\ndef make(): return Net()",
    "a method": "class make:\n    def act(self): return {}",
    "a class attribute": "class make:\n    width = {}",
    "an inherited method": "class A:\n    def act(self): return {}\nclass make(A): pass",
    "a base": ("class A: pass\nclass B: pass\nclass make({}): pass", "A", "B"),
    "a static method": "class make:\n    @staticmethod\n    def act(): return {}",
    "a property": "class make:\n    @property\n    def act(self): return {}",
    "a cached property": "import functools\nclass make:\n    @functools.cached_property\n    def act(self): return {}",
    "a dataclass's default": "from dataclasses import dataclass\n@dataclass\nclass make:\n    x: int = {}",
    "a dataclass's factory": (
        "from dataclasses import dataclass, field\n@dataclass\nclass make:\n    x: int = field(default_factory={})",
        "int",
        "list",
    ),
    "a pydantic default": "from pydantic import BaseModel\nclass make(BaseModel):\n    x: int = {}",
    "a decorator": ("def twice(f): return lambda: {} * f()\n@twice\ndef make(): return 1", "2", "3"),
    "what is decorated": "import functools\n@functools.cache\ndef part(): return {}\ndef make(): return part()",
    "what a package decorates": "import torch\n@torch.no_grad()\ndef make(): return {}",
    "a closure": "def outer(x):\n    return lambda: x\nmake = outer({})",
    "which closure": "def outer(x):\n    return lambda: x\na, b = outer({}), outer(3)\ndef make(): return a() - b()",
    "closures changed for each other": (
        "def outer(x):\n    return lambda: x\na, b = {}\ndef make(): return a() - b()",
        "outer(1), outer(2)",
        "outer(2), outer(1)",
    ),
    "a bound argument": "from functools import partial\ndef f(x): return x\nmake = partial(f, {})",
    "a partial's function": "from functools import partial\ndef f(x): return x + {}\nmake = partial(f, 1)",
    "a number": "WIDTH = {}\ndef make(): return WIDTH",
    "a number's kind": ("WIDTH = {}\ndef make(): return WIDTH", "1", "1.0"),
    "a text": ("NAME = {}\ndef make(): return NAME", "'a'", "'b'"),
    "a tuple": ("SIZES = {}\ndef make(): return SIZES", "(1, (2, 3))", "(1, (2, 4))"),
    "a dict": ("SIZES = {}\ndef make(): return SIZES", "{'a': [1]}", "{'a': [2]}"),
    "a set": ("NAMES = {}\ndef make(): return NAMES", "{'a', 'b'}", "{'a', 'c'}"),
    "an array": ("import numpy as np\nW = np.array({})\ndef make(): return W", "[1, 2]", "[1, 3]"),
    "a scalar": "import numpy as np\nW = np.float32({})\ndef make(): return W",
    "a tensor": ("import torch\nW = torch.tensor({})\ndef make(): return W", "[1, 2]", "[1, 3]"),
    "a bf16 tensor": (
        "import torch\nW = torch.tensor({}, dtype=torch.bfloat16)\ndef make(): return W",
        "[1, 2]",
        "[1, 3]",
    ),
    "an object": "class Setting:\n    def __init__(self, x): self.x = x\nS = Setting({})\ndef make(): return S.x",
    "a constant of a nested class": "W = {}\ndef make():\n    class A:\n        x = W\n    return A",
    "a function in a table": "def a(): return {}\nTABLE = {{'a': a}}\ndef make(): return TABLE['a']()",
    "mutual calls": "def a(n): return n and b(n - 1)\ndef b(n): return a(n - {})\ndef make(): return a(3)",
    "itself": "def make(n): return n and make(n - {})",
}
"""What is edited, and to what, 1 to 2 where nothing else is said."""


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed_and_a_fresh_import_is_not(edit: str, write: Write) -> None:
    given = EDITS[edit]
    content, old, new = (given, "1", "2") if isinstance(given, str) else given
    before = code(write, content.format(old))
    assert before.pieces
    assert code(write, content.format(old)) == before
    assert code(write, content.format(new)).pieces != before.pieces


HELPERS = {
    "by name": "from helper import scale\ndef make(): return scale()",
    "by module": "import helper\ndef make(): return helper.scale()",
    "under another name": "import helper as h\ndef make(): return h.scale()",
    "within the function": "def make():\n    from helper import scale\n    return scale()",
    "by text": "import helper\ndef make(): return getattr(helper, 'scale')()",
    "a constant of it": "from helper import scale, WIDTH\ndef make(): return scale() + WIDTH",
    "a base class of it": "import helper\nclass make(helper.Base): pass",
}


@pytest.mark.parametrize("way", HELPERS)
def test_a_helper_in_a_second_file_is_followed(way: str, write: Write) -> None:
    helper = "WIDTH = {0}\ndef scale(): return {0}\nclass Base:\n    def act(self): return {0}"
    before = code(write, HELPERS[way], helper=helper.format(1))
    assert any("helper" in name for name in before.pieces)
    assert code(write, HELPERS[way], helper=helper.format(1)) == before
    assert code(write, HELPERS[way], helper=helper.format(2)).pieces != before.pieces


def test_what_is_not_reached_does_not_matter(write: Write) -> None:
    """Nor do comments, line numbers and the folder; but names say what changed."""
    old = "import helper\nW = 1\ndef make(): return helper.scale() + W\ndef other(): return 1"
    new = "import helper\n\n# said\nW = 1\ndef make():  # more\n    return helper.scale() + W\ndef other(): return 2"
    helper = "def scale(): return 1\ndef unused(): return {}"
    before = code(write, old, helper=helper.format(1))
    assert before == code(write, new, helper=helper.format(2))
    assert list(before.pieces) == ["constant mine.W", "helper.scale", "mine.make"]


def test_packages_count_by_version() -> None:
    def make() -> nn.Module:
        return nn.Linear(2, int(np.sqrt(4)))

    found = code_of(make)
    assert found.packages == {"numpy": np.__version__, "torch": torch.__version__}
    assert list(found.pieces) == ["test_code.test_packages_count_by_version.make"]
    assert code_of(partial(nn.Linear, 3)).pieces != code_of(partial(nn.Linear, 4)).pieces


class Net(nn.Module):
    """A module with parameters, buffers, a part and a setting."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
        self.register_buffer("seen", torch.zeros(2))


def test_a_module_is_its_class_its_parameters_and_its_buffers() -> None:
    torch.manual_seed(0)
    net = Net()
    before = code_of(net)
    assert {"state", "test_code.Net", "test_code.Net.__init__"} <= set(before.pieces)
    assert code_of(net) == before
    changes: list[Callable[[Any], Any]] = [
        lambda net: net.layer[0].weight.data.add_(1e-3),
        lambda net: net.seen.add_(1),
        lambda net: setattr(net.layer[1], "p", 0.4),
    ]
    states = {before.pieces["state"]}
    for change in changes:
        change(net)
        states.add(code_of(net).pieces["state"])
    assert len(states) == 4


class Hostile:
    """To ask for what it has not is an error of another kind."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


UNREADABLE: dict[str, Callable[[], Any]] = {
    "a lock": threading.Lock,
    "a hostile object": Hostile,
    "a tensor without data": lambda: torch.empty(3, device="meta"),
    "a deep list": lambda: nested(400),
    "a package's odd module": lambda: torch.ops,
    "an iterator": lambda: iter([1]),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_stops_nothing(kind: str) -> None:
    value = UNREADABLE[kind]()

    def make() -> Any:
        return value

    assert code_of(make) == code_of(make)
    assert all("torch" not in name for name in code_of(make).pieces)


ELSEWHERE = """
import sys; sys.path.insert(0, {folder!r})
import mine
from ecgr.code import code_of
print(sorted(code_of(mine.make).pieces.items()))
"""


@pytest.mark.slow
def test_another_process_finds_the_same(tmp_path: Path) -> None:
    """Sets have another order there, objects another address; the folder is another, too."""
    content = """
import re, logging
from pathlib import Path
import torch
NAMES = {"alpha", "beta", "gamma", "delta"}
HERE, TEXT = Path(__file__).parent, str(Path(__file__).parent / "x.csv")
LOG, PATTERN, DEVICE = logging.getLogger(__name__), re.compile("a+"), torch.device("cpu")
class Thing:
    def __init__(self): self.other = self
THING = Thing()
def make(x):
    return NAMES, HERE, TEXT, LOG, PATTERN, DEVICE, THING, x in {"one", "two", "three"}, torch.float64, make
"""
    found = set()
    for number, seed in enumerate("012"):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(content)
        script = ELSEWHERE.format(folder=str(folder))
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1
    assert "constant mine.NAMES" in found.pop()


def test_it_survives_the_way_to_a_worker(write: Write) -> None:
    import cloudpickle

    module = write(
        "import torch\nW = 3\nclass Net(torch.nn.Module):\n    def act(self): return W\ndef make(): return Net()"
    )
    before = code_of(module.make)
    cloudpickle.register_pickle_by_value(module)
    try:
        assert code_of(cloudpickle.loads(cloudpickle.dumps(module.make))) == before
    finally:
        cloudpickle.unregister_pickle_by_value(module)
