"""The READMEs: every Python block runs, every option and file that they name exists, both say the same things."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hello_react.cli import build_parser
from hello_react.settings import NAMES
from tests.servers import ModelServer

ROOT = Path(__file__).resolve().parent.parent
READMES = ["README.md", "README.zh-CN.md"]
ANSWERS = [
    "Thought: I need the product.\nAction: Calculator[(2123 + 2321) * 312]",
    "Thought: That is it.\nAction: Finish[1386528]",
]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name, language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", read(name), re.DOTALL | re.MULTILINE)
    return [text for kind, text in fences if kind == language]


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in READMES for number in range(len(blocks(name, "python")))]
)
def test_python_blocks_run(name, number, monkeypatch, nothing_of_this_machine):
    (nothing_of_this_machine / "block.py").write_text(blocks(name, "python")[number], encoding="utf-8")
    with ModelServer(ANSWERS) as server:
        for setting, value in {
            "LLM_MODEL_ID": "m",
            "LLM_API_KEY": "k1234567",
            "LLM_BASE_URL": server.url,
        }.items():
            monkeypatch.setenv(setting, value)
        monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
        run = subprocess.run([sys.executable, "block.py"], capture_output=True, encoding="utf-8", timeout=100)
    assert (run.returncode, run.stderr) == (0, "")
    assert "Answer: " in run.stdout


@pytest.mark.parametrize("name", READMES)
def test_options_settings_and_files_exist(name):
    text = read(name)
    known = {option for action in build_parser()._actions for option in action.option_strings}
    used = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text))
    assert used <= known | {"--no-deps", "--speed"}, used - known
    named = set(re.findall(r"\b((?:LLM|SERPAPI|OPENWEATHER|LOCAL)_[A-Z_]+)\b", text))
    assert named <= {*NAMES, "LLM_"}
    for link in re.findall(r"\]\((?!https?:|#)([^)]+)\)", text):
        assert (ROOT / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("name", READMES)
def test_the_annotated_tree_names_every_room(name):
    tree = next(block for block in blocks(name, "") if block.startswith("hello_react/\n"))
    rooms = {
        path.name
        for path in (ROOT / "hello_react").iterdir()
        if path.suffix == ".py" and path.name != "__init__.py"
    }
    folders = {
        f"{path.name}/"
        for path in (ROOT / "hello_react").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    missing = [room for room in sorted(rooms | folders) if room not in tree]
    assert missing == []
    for room in re.findall(r"[\w]+\.py|^  ([a-z]+/)", tree):
        assert not room or room in folders


@pytest.mark.parametrize("language", ["sh", "python", "mermaid"])
def test_both_readmes_hold_the_same_blocks(language):
    english, chinese = (blocks(name, language) for name in READMES)
    assert len(english) == len(chinese)
    if language == "sh":

        def commands(block):
            return [line.split("#")[0].strip() for line in block.splitlines()]

        assert [[re.sub(r'"[^"]*"', '""', c) for c in commands(b)] for b in english] == [
            [re.sub(r'"[^"]*"', '""', c) for c in commands(b)] for b in chinese
        ]


def test_both_readmes_have_the_same_sections():
    english, chinese = (re.findall(r"^(#+) ", read(name), re.MULTILINE) for name in READMES)
    assert english == chinese
