"""The rules of the house that no other tool of ours checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.order import LONGEST, TESTS

ROOT = Path(__file__).parent.parent
FLOORS = ("gateway", "policies", "models")
MODULES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))}
READ_ONLY = ("Mapping[", "Sequence[", "Collection[", "Set[")
CONTAINERS = ("bytearray", "defaultdict", "deque", "dict", "list", "set", "OrderedDict", "Counter")


def test_imports_run_down() -> None:
    linted = subprocess.run([Path(sys.executable).with_name("lint-imports"), "--no-logo"], cwd=ROOT, capture_output=True, text=True)

    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "Three floors: imports only run down KEPT" in linted.stdout


def loaded_by(*imports: str) -> set[str]:
    """The top-level names of everything that a fresh interpreter holds after those imports."""
    code = f"import {', '.join(imports)}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_serving_process_does_not_carry_what_it_does_not_use() -> None:
    loaded = loaded_by("gateway.app", "gateway.serve")

    assert {"gateway", "policies", "fastapi", "msgspec"} <= loaded
    assert not loaded & {
        "scipy",
        "sklearn",
        "alembic",
        "torch",
        "numpy",
        "pandas",
        "sqlalchemy",
        "httpx",
        "openai",
        "xllamacpp",
        "gguf",
        "pytest",
    }


def test_decisions_and_predictions_know_no_web() -> None:
    """Strategies and judges wait for answers, so these know asyncio, and who replays them; nobody else does."""
    floors = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in MODULES if not name.startswith("gateway")]
    waiting = [name for name in floors if name.startswith(("policies.decoding", "policies.judging", "policies.bench.recordings"))]
    web = {
        "gateway",
        "fastapi",
        "starlette",
        "uvicorn",
        "aiohttp",
        "httpx",
        "httptools",
        "sqlalchemy",
        "sqlite3",
    }

    assert not loaded_by(*waiting) & web
    assert not loaded_by(*(name for name in floors if name not in waiting)) & (web | {"asyncio", "ssl"})


@pytest.mark.parametrize("name", MODULES)
def test_no_module_holds_state_that_could_change(name: str) -> None:
    """A container at the top of a module is a constant: annotated as read-only, which the type checker then holds everybody to."""
    found = [f"line {line}: {text}" for line, text in changeable(MODULES[name])]

    assert found == []


def changeable(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Global):
            yield node.lineno, ast.unparse(node)
    names = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in module.body if isinstance(node, ast.Assign)}
    for node in module.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and is_container(node.value):
            annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            if not names.get(annotation, annotation).removeprefix("Final[").startswith(READ_ONLY):
                yield node.lineno, ast.unparse(node)[:100]
        elif isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(decorator) for decorator in node.decorator_list):
            yield node.lineno, f"{node.name} remembers"


def is_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in CONTAINERS
    if isinstance(value, ast.BinOp):
        # A name and a set is a frozenset if the name is one, and else the name was found where it was bound.
        return is_container(value.left) or (is_container(value.right) and not isinstance(value.right, ast.Set))
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = []", 1),
        ("x = {1: 2}", 1),
        ("x: dict[str, int] = {}", 1),
        ("x = {'a'} | y", 1),
        ("x = y | {'a': 1}", 1),
        ("x = collections.deque()", 1),
        ("x = [y for y in z]", 1),
        ("def f():\n    global x\n    x = 1", 1),
        ("@lru_cache\ndef f():\n    return 1", 1),
        ("x: Mapping[str, int] = {}\ny: Final[Sequence[int]] = [1]\nz = (1, 2)\nw = frozenset({1})\nv = w | {2}", 0),
        ("Table = Mapping[str, int]\nx: Table = {}", 0),
        ("Table = dict[str, int]\nx: Table = {}", 1),
        ("def f():\n    x = []\n    return x", 0),
    ],
)
def test_the_rule_on_state_sees_what_it_should(text: str, found: int) -> None:
    assert len(list(changeable(ast.parse(text)))) == found


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_says_what_it_is(name: str) -> None:
    assert [f"line {line}: {what}" for line, what in silent(MODULES[name])] == []


def silent(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules, and their public classes and functions, that have no docstring."""
    if not ast.get_docstring(module):
        yield 1, "module"
    for node in module.body:
        if (
            isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ):
            yield node.lineno, node.name


def test_files_that_are_named_as_the_longest_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
