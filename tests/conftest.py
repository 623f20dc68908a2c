"""What holds for every test: an empty folder to work in, no setting of this machine, no network beyond loopback."""

import importlib.util
import os
import signal
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
GUARD = Path(__file__).resolve().parent / "guard"
_spec = importlib.util.spec_from_file_location("network_guard", GUARD / "sitecustomize.py")
network_guard = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(network_guard)

from hello_react.settings import NAMES  # noqa: E402

# Where the tests were started in the background, Ctrl-C is ignored, also by every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("no deadline", deadline=None)  # a busy machine fails no test
hypothesis.settings.load_profile("no deadline")

FOREIGN = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "NO_COLOR",
    "FORCE_COLOR",
)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch, tmp_path):
    """Work in an empty folder that is a project of its own, with no setting in the environment."""
    for name in {*NAMES, *FOREIGN} - {"HELLO_REACT_CACHE"}:  # the weights may be kept elsewhere
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    monkeypatch.chdir(folder)
    paths = [str(GUARD), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return folder
