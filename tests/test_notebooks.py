"""The chapters: they run anywhere, their stored outputs are true, both languages teach the same, and links lead on.

`pytest -m notebooks` runs those tests alone that execute a chapter; `-m "not notebooks"` leaves them out.
"""

import ast
import importlib.util
import json
import re
import signal
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
LANGUAGES = ("en", "zh")
CHAPTERS = (
    "00_why",
    "01_the_model",
    "02_tools",
    "03_the_prompt",
    "04_the_parser",
    "05_the_loop",
    "06_running_and_debugging",
    "07_conversation",
    "08_tool_calls",
    "09_workflow",
    "10_teach_a_small_model",
    "11_your_own_agent",
    "12_the_next_patterns",
)
BUILD_NOTHING = {"00", "11", "12"}  # these use what the others built
TAGS = {"live", "plot", "traceback", "raises-exception", "key"}


def there(*folders):
    """The notebooks that exist, chapters in order."""
    paths = [NOTEBOOKS / language / folder / f"{name}.ipynb"
             for language in LANGUAGES for folder in folders for name in CHAPTERS]  # fmt: skip
    return [path for path in paths if path.exists()]


ALL, MAIN, SOLUTIONS = there("", "solutions"), there(""), there("solutions")


def each(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(NOTEBOOKS))[:-6])


@cache
def cells(path):
    """The cells of a notebook, each source as one text."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in found:
        cell["source"] = "".join(cell["source"])
    return found


def code(path):
    return [cell for cell in cells(path) if cell["cell_type"] == "code"]


def prose(path):
    return "\n\n".join(cell["source"] for cell in cells(path) if cell["cell_type"] == "markdown")


def tags(cell):
    return set(cell["metadata"].get("tags", []))


def texts(cell):
    """What the outputs of a cell show, without pictures."""
    for output in cell["outputs"]:
        for kind, data in {"text": output.get("text", []), **output.get("data", {})}.items():
            if not kind.startswith("image/"):
                yield "".join(data) if isinstance(data, (list, str)) else json.dumps(data)
        yield "\n".join(output.get("traceback", []))


# --- they run


@pytest.fixture(scope="session")
def run():
    """The module `notebooks/run.py`; its needs are not installed everywhere."""
    for name in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location("notebooks_run", NOTEBOOKS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.notebooks
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # what Jupyter's own packages warn about is not ours to mend
@each(ALL)
def test_it_runs_from_a_clean_kernel_and_gives_the_stored_outputs(path, run):
    fresh = run.execute(path)
    problems = run.differences(run.read(path), fresh)
    assert not problems, "\n".join(problems)
    written = [output.text for cell in fresh.cells for output in cell.get("outputs", ()) if output.get("name") == "stderr"]
    assert written == []


# --- they are whole


def test_all_chapters_exist_in_both_languages():
    names = [f"{folder}{name}.ipynb" for folder in ("", "solutions/") for name in CHAPTERS]
    wanted = {f"{language}/{name}" for language in LANGUAGES for name in [*names, "glossary.md"]}
    assert {name for name in wanted if not (NOTEBOOKS / name).exists()} == set()
    found = {str(path.relative_to(NOTEBOOKS)) for path in NOTEBOOKS.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts}
    assert {name for name in found if name not in wanted} == set()


@each(ALL)
def test_stored_outputs_are_those_of_one_run(path):
    counts = [cell["execution_count"] for cell in code(path) if "key" not in tags(cell)]
    assert counts == list(range(1, len(counts) + 1))
    assert any(cell["outputs"] for cell in code(path))
    names = [output.get("name") for cell in code(path) for output in cell["outputs"]]
    assert "stderr" not in names
    for cell in code(path):
        failed = any(output["output_type"] == "error" for output in cell["outputs"])
        assert not failed or tags(cell) & {"traceback", "raises-exception"}
        assert tags(cell) <= TAGS


@each(ALL)
def test_cells_for_a_key_of_ones_own_are_stored_without_output(path):
    for cell in code(path):
        if "key" in tags(cell):
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            first = next(node for node in ast.parse(cell["source"]).body if not isinstance(node, (ast.Import, ast.ImportFrom)))
            assert isinstance(first, ast.If), "it does not ask first whether there is a key"


@each(ALL)
def test_a_notebook_holds_nothing_of_the_machine_it_ran_on(path, run):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"] == run.METADATA
    assert [cell["id"] for cell in notebook["cells"]] == [f"cell-{n:02d}" for n in range(len(notebook["cells"]))]
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    shown = [text for cell in code(path) for text in texts(cell)]
    for text in [prose(path), *(cell["source"] for cell in code(path)), *shown]:
        assert not re.search(r"(?<![\w.:/])/(?:home|root|Users|work|mnt)/|[A-Z]:\\Users|ipykernel_\d|pypi|pip download", text)
        assert not re.search(r"sk-(?!x)\w{16,}|\bAIza\w{20,}|\bgh[op]_\w{20,}", text)
        assert str(ROOT) not in text
    for text in shown:
        assert not re.search(r"(?<![\w.:/])/(?:tmp|var)/", text)
        assert not re.search(r"\bat 0x[0-9a-f]{6,}", text), "the address of an object differs from run to run"


# --- they are small, and build on each other


@each(ALL)
def test_cells_are_small(path):
    lengths = [len(cell["source"].splitlines()) for cell in code(path)]
    assert max(lengths) <= 25
    assert statistics.median(lengths) <= (8 if path in MAIN else 12)
    assert [line for cell in code(path) for line in cell["source"].splitlines() if len(line) > 100] == []
    assert all(cell["source"].strip() for cell in cells(path))


class _Blank(ast.NodeTransformer):
    """Strings become empty; of a string with values in braces the values are left, in any order."""

    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node):
        values = [self.visit(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.Tuple(sorted(values, key=ast.dump)) if values else ast.Constant("")


def outline(source):
    """The code without comments and without what its strings say."""
    return ast.unparse(_Blank().visit(ast.parse(source)))


@pytest.mark.parametrize("folder", ["", "solutions"])
@pytest.mark.parametrize("name", CHAPTERS)
def test_both_languages_have_the_same_code(name, folder):
    ours, theirs = (NOTEBOOKS / language / folder / f"{name}.ipynb" for language in LANGUAGES)
    if not (ours.exists() and theirs.exists()):
        pytest.skip("not in both languages yet")
    for number, (one, other) in enumerate(zip(code(ours), code(theirs), strict=False)):
        assert outline(one["source"]) == outline(other["source"]), f"code cell {number}"
        assert tags(one) == tags(other), f"code cell {number}"
    assert len(code(ours)) == len(code(theirs))
    assert re.search("[\u4e00-\u9fff]", prose(theirs))


def test_the_comparison_of_languages_sees_code_and_not_words():
    assert outline('print("a", f"{x} of {y:.1f}")  # one') == outline('print("甲", f"{y:.2f} 中的 {x}")  # 一')
    assert outline('print("a")') != outline('print("a", end="")')
    assert outline('f"{x}"') != outline('f"{y}"')
    assert outline("print(1)") != outline("print(2)")


def definitions(path):
    """(name, body without docstring, number of nodes) of every function and class in a notebook."""
    for cell in code(path):
        for node in ast.walk(ast.parse(cell["source"])):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                arguments = "" if isinstance(node, ast.ClassDef) else ast.dump(node.args)
                yield node.name, arguments + "".join(map(ast.dump, body)), len(body)


@each([path for path in ALL if "en" in path.parts])
def test_nothing_is_copied_from_an_earlier_chapter(path):
    earlier = [other for other in there("") if "en" in other.parts and other.stem < path.stem]
    for other in earlier:
        known = list(definitions(other))
        for name, body, size in definitions(path):
            for its_name, its_body, _ in known:
                assert not (body == its_body and (name == its_name or size > 1)), f"{name} is {its_name} of {other.stem}"


# --- they lead on


def links(markdown):
    """What the text links to, outside code."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    return re.findall(r"\]\(\s*([^)\s]+)", text) + re.findall(r'(?:href|src)="([^"]+)"', text)


def targets(path, markdown):
    """The files that the text links to; of a package its `__init__.py`."""
    for link in links(markdown):
        if not urlsplit(link).scheme and not link.startswith("#"):
            target = (path.parent / unquote(urlsplit(link).path)).resolve()
            inner = target / "__init__.py"
            yield inner if inner.exists() else target


DOCUMENTS = [*ALL, *(path for path in sorted(NOTEBOOKS.rglob("*.md")))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(NOTEBOOKS)))
def test_links_lead_to_files_that_exist(path):
    text = prose(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    planned = {NOTEBOOKS / language / folder / f"{name}.ipynb"
               for language in LANGUAGES for folder in ("", "solutions") for name in CHAPTERS}  # fmt: skip
    missing = {str(target) for target in targets(path, text) if not target.exists() and target not in planned}
    assert missing == set()
    other = "zh" if "en" in path.parts else "en"
    assert not any((NOTEBOOKS / other) in target.parents for target in targets(path, text))
    assert all(link.startswith(("https://", "http://127.0.0.1")) for link in links(text) if urlsplit(link).scheme)


@each(MAIN)
def test_a_chapter_links_its_neighbours_its_solutions_and_the_glossary(path):
    number = CHAPTERS.index(path.stem)
    wanted = {path.parent / "solutions" / path.name, path.parent / "glossary.md"}
    wanted |= {path.parent / f"{name}.ipynb" for name in (CHAPTERS[number - 1:number] + CHAPTERS[number + 1:number + 2])}
    assert wanted - set(targets(path, prose(path))) == set()


@each(MAIN)
def test_a_chapter_has_three_exercises_with_hints(path):
    exercises = [cell["source"] for cell in cells(path) if "<details>" in cell["source"]]
    assert "".join(exercises).count("<details>") >= 3
    assert "".join(exercises).count("<details>") == "".join(exercises).count("</details>")


@each(SOLUTIONS)
def test_solutions_solve_three_exercises_and_check_it(path):
    assert [int(number) for number in re.findall(r"^## (\d)\b", prose(path), re.MULTILINE)] == [1, 2, 3]
    assert path.parent.parent / path.name in set(targets(path, prose(path)))
    checks = [node for cell in code(path) for node in ast.walk(ast.parse(cell["source"])) if isinstance(node, ast.Assert)]
    assert len(checks) >= 3


def head(path):
    """The prose before the first code cell."""
    found = cells(path)
    return "\n\n".join(cell["source"] for cell in found[: found.index(code(path)[0])])


@each(MAIN)
def test_a_chapter_says_at_its_top_how_long_it_takes(path):
    minutes = re.search(r"(\d+)(?:\D{1,4}(\d+))? ?(?:minutes|分钟)", head(path))
    assert minutes
    assert all(10 <= int(number) <= 25 for number in minutes.groups() if number)


MODULES = sorted((ROOT / "hello_react").rglob("*.py"))


@cache
def chapters_of(module):
    """The numbers of the chapters that the docstring of a module names."""
    said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    lists = re.findall(r"chapters? (\d\d(?:(?:, | and | to )\d\d)*)", said)
    return {number for listed in lists for number in re.findall(r"\d\d", listed)}


def test_modules_name_chapters_by_number_and_only_those_there_are():
    for module in MODULES:
        said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        assert chapters_of(module) <= {name[:2] for name in CHAPTERS}, module
        assert not re.search(r"(?i)the \w+ chapter\b", said), module


@each(MAIN)
def test_a_chapter_and_its_modules_name_each_other(path):
    number = path.stem[:2]
    linked = {target for target in targets(path, prose(path)) if target.suffix == ".py"}
    at_top = {target for target in targets(path, head(path)) if target.suffix == ".py"}
    named = {module for module in MODULES if number in chapters_of(module)}
    assert named - linked == set(), "these modules name the chapter, which does not link them"
    assert at_top, "the top of the chapter links no module"
    assert {module for module in at_top if not chapters_of(module)} == set(), "the top links modules without a chapter"
    assert number in BUILD_NOTHING or at_top & named, "no module that the top links names this chapter"


# --- the glossary


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_glossary_explains_each_term_and_says_where_it_is_met(language):
    path = NOTEBOOKS / language / "glossary.md"
    entries = re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|^#|\Z)", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert 35 <= len(entries) <= 50
    for term, text in entries:
        suffixes = [target.suffix for target in targets(path, text)]
        assert ".ipynb" in suffixes, term
    assert len({term for term, _ in entries}) == len(entries)


def test_both_glossaries_have_the_same_terms():
    met = []
    for language in LANGUAGES:
        path = NOTEBOOKS / language / "glossary.md"
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("**")]
        met.append(sorted(sorted(target.name for target in targets(path, line)) for line in lines))
    assert met[0] == met[1]


# --- the runner itself

HELLO = 'print("hello")'


def notebook(path, *sources, **marks):
    """A small notebook in `path`; `marks` gives the tags of a cell, by its number."""
    nbformat = pytest.importorskip("nbformat")
    made = [nbformat.v4.new_code_cell(source, metadata={"tags": marks.get(f"cell{number}", [])})
            for number, source in enumerate(sources)]  # fmt: skip
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


def shell(*arguments, **options):
    command = [sys.executable, str(NOTEBOOKS / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)


@pytest.fixture
def folder(tmp_path, run):
    """An empty folder for notebooks; skipped where nothing can run them."""
    return tmp_path


@pytest.mark.notebooks
def test_run_writes_outputs_and_check_finds_them_true(folder):
    path = notebook(folder / "a.ipynb", HELLO, "1/0", "import random; random.random()", "raise SystemExit",
                    cell1=["raises-exception"], cell2=["live"], cell3=["key"])  # fmt: skip
    assert shell(folder, "--check").returncode == 1
    done = shell(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"ok +\d+\.\d s  \S+a\.ipynb\n", done.stdout)
    first, second, third, fourth = json.loads(path.read_text())["cells"]
    assert first["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["hello\n"]}]
    assert second["outputs"][0]["ename"] == "ZeroDivisionError"
    assert third["outputs"]
    assert (fourth["outputs"], fourth["execution_count"]) == ([], None)
    before = path.read_bytes()
    assert shell(path, "--check").returncode == 0
    assert path.read_bytes() == before
    assert [one.name for one in folder.iterdir() if one.suffix == ".ipynb" or one.name.startswith(".a")] == ["a.ipynb"]


@pytest.mark.notebooks
def test_run_says_what_failed_or_differs(folder):
    notebook(folder / "a.ipynb", HELLO)
    notebook(folder / "b.ipynb", HELLO, "undefined")
    shell(folder / "a.ipynb")
    (folder / "a.ipynb").write_text((folder / "a.ipynb").read_text().replace('"hello\\n"', '"bye\\n"'))
    done = shell(folder, "--check")
    assert done.returncode == 1
    assert "-bye\n" in done.stdout
    assert "+hello\n" in done.stdout
    assert "cell 1:" in done.stdout
    assert "NameError: name 'undefined' is not defined" in done.stdout
    (folder / "c.ipynb").write_text("{")
    assert "c.ipynb" in shell(folder / "c.ipynb").stdout
    assert shell(folder / "none.ipynb").returncode == 2


@pytest.mark.notebooks
def test_run_keeps_keys_settings_and_the_network_out(folder, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "sk-real")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    (folder / ".env").write_text("LLM_MODEL_ID=real")
    path = notebook(
        folder / "a.ipynb",
        "import os; from hello_react import Settings; Settings.load(), [name for name in os.environ if 'LLM_' in name or 'OPENAI' in name]",
        "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80))\nexcept BaseException as error:\n    print(error)",
    )
    done = shell(path, cwd=folder)
    assert done.returncode == 0, done.stdout
    first, second = json.loads(path.read_text())["cells"]
    assert "real" not in json.dumps(first["outputs"])
    assert "model=None" in json.dumps(first["outputs"])
    assert "OPENAI" not in json.dumps(first["outputs"])
    assert second["outputs"][0]["text"] == ["a test tried to reach 192.0.2.1\n"]


@pytest.mark.notebooks
@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_ctrl_c_leaves_the_file_alone_and_ends_the_kernel(folder):
    path = notebook(folder / "a.ipynb", f"open({str(folder / 'started')!r}, 'w').close(); import time; time.sleep(60)")
    before = path.read_bytes()
    child = subprocess.Popen(
        [sys.executable, str(NOTEBOOKS / "run.py"), str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child:
        while not (folder / "started").exists():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, "stopped in a.ipynb; nothing was written to it\n")
    assert path.read_bytes() == before
