"""The promises about the package itself: its size, its one loop, who imports whom, what importing costs."""

import ast
import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hello_react

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hello_react"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))


def code_lines(path: Path) -> int:
    """Physical lines, blank lines and docstrings not counted."""
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return sum(
        1 for number, line in enumerate(source.split("\n"), 1) if line.strip() and number not in docstrings
    )


def total(*names: str) -> int:
    return sum(code_lines(PACKAGE / f"{name}.py") for name in names)


def test_the_agent_fits_in_one_sitting():
    assert total("parser", "tools", "agent") < 600


def test_the_core_stays_small():
    assert (
        total(
            "parser", "tools", "agent", "repairs", "guards", "prompt", "llm", "events", "errors", "settings"
        )
        < 1600
    )


def test_the_workflow_engine_stays_small():
    assert len((PACKAGE / "workflow.py").read_text(encoding="utf-8").splitlines()) < 450


def test_there_is_one_loop_and_its_method_is_short():
    tree = ast.parse((PACKAGE / "agent.py").read_text(encoding="utf-8"))
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    assert len(loops) == 1
    methods = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and loops[0] in ast.walk(node)
    ]
    assert all(method.end_lineno - method.lineno + 1 < 60 for method in methods)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_lines_are_at_most_110_columns(path):
    assert [
        number
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if len(line) > 110
    ] == []


# Each room may import from its own row or from the rows below it.
FLOORS = [
    {"__main__", "cli", "training"},
    {"chat"},
    {"react_workflow", "compat", "tracing"},
    {"logs"},
    {"tool_calling", "trace"},
    {"agent", "workflow"},
    {"local", "toolbox", "console", "display", "memory"},
    {"tools", "llm", "prompt", "guards"},
    {"workflow_steps"},
    {"workflow_context"},
    {"workflow_state"},
    {"arguments", "streaming", "service", "workflow_events"},
    {"events"},
    {"parser"},
    {"repairs", "dialects"},
    {"text", "background", "errors", "settings", "__init__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LAZY = {("llm", "local"), ("agent", "console"), ("console", "agent"), ("events", "display")}


def imports_of(path: Path):
    """(room, imported room, whether only for the type checker) of every import inside the package."""
    relative = path.relative_to(PACKAGE)
    room = "training" if "training" in relative.parts else relative.parts[0].removesuffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in typing_only:
            if node.level:
                base = list(relative.parts[:-1])[: len(relative.parts) - node.level]
                target = [*base, *(node.module.split(".") if node.module else [])]
            elif node.module and node.module.split(".")[0] == "hello_react":
                target = node.module.split(".")[1:]
            else:
                continue
            for name in [target[0]] if target else [alias.name for alias in node.names]:
                yield room, "training" if "training" in target else name


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.name != "__init__.py" or path.parent != PACKAGE],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_no_room_imports_from_a_floor_above(path):
    for room, imported in imports_of(path):
        if (PACKAGE / f"{imported}.py").exists() or (PACKAGE / imported).is_dir():
            assert FLOOR[room] <= FLOOR[imported] or (room, imported) in LAZY, f"{room} imports {imported}"


def test_print_is_for_the_command_line_alone():
    allowed = {"cli.py", "console.py", "__main__.py"}
    for path in SOURCES:
        if path.name in allowed or "training" in path.parts:
            continue
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        assert calls == [], path


@pytest.mark.parametrize(
    "code",
    [
        "import hello_react",
        "import hello_react; hello_react.__version__",
        "from hello_react import parse; parse('Action: Finish[1]')",
        "from hello_react.cli import main; main(['--help'])",
        "from hello_react.cli import main; main(['--version'])",
        "from hello_react import ScriptedLLM, ReActAgent, ToolExecutor; "
        "ReActAgent(ScriptedLLM(['Action: Finish[1]']), ToolExecutor()).run('q')",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    check = f"import sys; {code}; sys.exit(bool({{'openai', 'pydantic', 'requests', 'dotenv', 'xllamacpp'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True).returncode == 0


def test_importing_does_nothing():
    script = (
        "import builtins, os, sys; before = dict(os.environ); import hello_react; assert dict(os.environ) == before; "
        "loaded = [name for name in sys.modules if name.startswith('hello_react')]; print(loaded)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.strip() == "['hello_react']"
    assert run.stderr == ""


def test_every_public_name_is_there_and_documented():
    wanted = {
        "HelloAgentsLLM",
        "ScriptedLLM",
        "FunctionLLM",
        "Tool",
        "ToolExecutor",
        "ReActAgent",
        "Result",
        "parse",
        "search",
        "calculate",
        "default_llm",
    }
    assert wanted <= set(hello_react.__all__)
    for name in hello_react.__all__:
        thing = getattr(hello_react, name)
        assert name == "__version__" or thing.__doc__, name
    assert set(dir(hello_react)) >= set(hello_react.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Serach'"):
        hello_react.Serach


def test_the_version_is_the_projects():
    assert f'version = "{hello_react.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def modules():
    for module in pkgutil.walk_packages(hello_react.__path__, "hello_react."):
        if not module.name.endswith("__main__") and ".training" not in module.name:
            yield module.name


@pytest.mark.parametrize("name", ["hello_react", *modules()])
def test_module_docstrings_say_what_they_are_and_their_examples_run(name):
    module = importlib.import_module(name)
    assert module.__doc__
    failed, _ = doctest.testmod(module)
    assert failed == 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_public_functions_and_classes_have_docstrings(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        overloaded = any(ast.unparse(mark) == "overload" for mark in getattr(node, "decorator_list", []))
        if (
            isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not node.name.startswith("_")
            and not overloaded
        ):
            assert ast.get_docstring(node), f"{path.name}: {node.name}"


def test_runtime_dependencies_are_the_three():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)[1]
    assert re.findall(r'"([\w-]+)', block) == ["openai", "python-dotenv", "google-search-results"]


def test_shipped_data_is_whole():
    lines = (PACKAGE / "toolbox" / "encyclopedia.jsonl").read_text(encoding="utf-8").splitlines()
    assert len([json.loads(line) for line in lines]) >= 150
    assert (PACKAGE / "py.typed").exists()
