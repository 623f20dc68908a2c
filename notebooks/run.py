"""Execute the chapters: `python notebooks/run.py [--check] [FILE or FOLDER ...]`, all if none is named.

Each notebook runs in a fresh kernel of this Python, without network, keys or `.env`; its working folder is a
copy of its own, without the notebooks. Without --check the outputs are written back, free of times and
versions; with it they are compared with those in the file. What cells tagged `live`, `plot` or `traceback`
show may differ, but not whether they end with an error; cells tagged `key` do not run. Times that the agent
prints are not compared. Needs `pip install -e '.[notebooks,local]'`.

Exit codes: 0 all is well, 1 a notebook failed or differs, 2 wrong usage, 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.reader import NotJSONError

NOTEBOOKS = Path(__file__).resolve().parent
ROOT = NOTEBOOKS.parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MAY_DIFFER = {"live", "plot", "traceback"}
CELL_TIMEOUT = 300
"""Seconds that one cell may take, or a kernel to start; a busy machine is slow."""

# What would let a machine's own settings into a chapter.
_FOREIGN = re.compile(r"(?:LLM|OPENAI|SERPAPI|OPENWEATHER|OPEN_METEO|WIKIPEDIA|LOCAL_MODEL|COVERAGE|COV)_\w+"
                      r"|NO_COLOR|FORCE_COLOR|MPLBACKEND|PYTHONWARNINGS|(?i:(?:http|https|all)_proxy)")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_FOLDERS = re.compile(r"(?:~|[A-Za-z]:)?[/\\](?:[^\s\x1b\"'(]*[/\\])?"
                      r"(?=(?:hello_react|site-packages|python3\.\d+)[/\\])")
_SECONDS = re.compile(r"\b\d+\.\d s(?=[])])")


class Failed(Exception):
    """A notebook could not be executed; the message says in which cell and why."""


def find(paths: list[str] | None = None) -> list[Path]:
    """The notebooks among files and folders, in order; all chapters and solutions if none is named.

    Raises:
        FileNotFoundError: a path that is no notebook and no folder.
    """
    found: list[Path] = []
    for path in [Path(one).resolve() for one in paths or [NOTEBOOKS]]:
        if path.is_dir():
            found += sorted(one for one in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in one.parts)
        elif path.is_file() and path.suffix == ".ipynb":
            found.append(path)
        else:
            raise FileNotFoundError(f"{path} is no notebook and no folder.")
    return found


def read(path: Path) -> Any:
    """The notebook in `path`, as nbformat has it.

    Raises:
        Failed: it is no notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except (NotJSONError, nbformat.ValidationError, UnicodeDecodeError) as error:
        raise Failed(f"no readable notebook: {error}") from None


def tags(cell: Any) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", []))


def execute(path: Path) -> Any:
    """The notebook in `path`, executed and normalised; the file is left as it is.

    Raises:
        Failed: a cell took too long, raised though it is not tagged `traceback` or `raises-exception`, or the
            kernel died.
    """
    notebook = read(path)
    spec = KernelSpecManager(kernel_dirs=[])  # this Python, not what the user has of that name
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=spec)
    client = NotebookClient(notebook, km=manager, timeout=CELL_TIMEOUT, startup_timeout=CELL_TIMEOUT,
                            record_timing=False, skip_cells_with_tag="key",
                            extra_arguments=["--log-level=CRITICAL"])
    client.owns_km = True  # it ends the kernel, also after Ctrl-C
    with tempfile.TemporaryDirectory() as place:
        folder, environment = _folder(path, Path(place)), _environment(Path(place))
        with client.setup_kernel(cwd=str(folder), env=environment):
            for number, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                cell.outputs, cell.execution_count = [], None
                try:
                    client.allow_errors = bool({"traceback", "raises-exception"} & tags(cell))
                    client.execute_cell(cell, number)
                except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                    why = _ESCAPE.sub("", str(error)).strip().splitlines()
                    raise Failed(f"cell {number}:\n" + "\n".join(why[-25:])) from None
    return normalise(notebook)


def _folder(path: Path, place: Path) -> Path:
    """The working folder within `place`, which is a project of its own: no `.env` above it is looked for."""
    (place / "pyproject.toml").touch()
    if NOTEBOOKS not in path.parents:
        return place
    hidden = shutil.ignore_patterns("*.ipynb", "*.py", ".*", "__pycache__")
    shutil.copytree(NOTEBOOKS, place / "notebooks", ignore=hidden)
    return place / "notebooks" / path.parent.relative_to(NOTEBOOKS)


def _environment(place: Path) -> dict[str, str]:
    """This environment without settings of the machine's user, with the guard that refuses the network."""
    environment = {name: value for name, value in os.environ.items() if not _FOREIGN.fullmatch(name)}
    paths = [str(ROOT / "tests" / "guard"), str(ROOT)]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(place / "ipython")}


def normalise(notebook: Any) -> Any:
    """The notebook without what differs from run to run or from machine to machine; changed in place."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        kept = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": kept} if kept else {})
        if cell.cell_type == "code":
            cell.outputs = _merged(cell.outputs)
    return notebook


def _merged(outputs: list[Any]) -> list[Any]:
    """Outputs with neighbouring pieces of one stream joined, and no folder of this machine in a traceback."""
    merged: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and merged and merged[-1].get("name") == output.name:
            merged[-1].text += output.text
            continue
        if output.output_type == "error":
            output.traceback = [_FOLDERS.sub("", line) for line in output.traceback]
        if "metadata" in output:
            output.metadata = nbformat.from_dict({})
        merged.append(output)
    return merged


def write(notebook: Any, path: Path) -> None:
    """Put the notebook into `path` in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(nbformat.writes(notebook) + "\n")
        os.chmod(name, path.stat().st_mode if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def differences(committed: Any, fresh: Any) -> list[str]:
    """Where the outputs in the file are not those of a fresh run: one text a cell, with a short diff."""
    found: list[str] = []
    for number, (old, new) in enumerate(zip(committed.cells, fresh.cells, strict=True)):
        if old.cell_type != "code":
            continue
        before, after = _comparable(old), _comparable(new)
        if before != after:
            lines = list(difflib.unified_diff(before, after, "committed", "fresh", n=1, lineterm=""))
            more = [f"... {len(lines) - 20} more lines"] if len(lines) > 20 else []
            found.append("\n".join([f"cell {number} differs:", *lines[:20], *more]))
    return found


def _comparable(cell: Any) -> list[str]:
    """The outputs of a cell as lines of text: all of them, or for some tags only how it ended."""
    if MAY_DIFFER & tags(cell):
        failed = any(output.output_type == "error" for output in cell.outputs)
        return [f"{'with' if cell.outputs else 'without'} output, {'an' if failed else 'no'} error"]
    lines = [f"[{cell.execution_count}]"]
    for output in cell.outputs:
        if output.output_type == "stream":
            lines += [f"({output.name})", *output.text.splitlines()]
        elif output.output_type == "error":
            lines += [f"(error) {output.ename}: {output.evalue}"]
        else:
            for kind, data in sorted(output.data.items()):
                text = data if isinstance(data, str) else json.dumps(data, sort_keys=True)
                lines += [f"({output.output_type} {kind})", *text.splitlines()]
    return [_SECONDS.sub("0.0 s", line) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    """Execute or check, one line a notebook; the exit code."""
    about = "Execute the chapters, each in a fresh kernel."
    parser = argparse.ArgumentParser(prog="run.py", description=about)
    parser.add_argument("paths", nargs="*", metavar="FILE or FOLDER", help="notebooks (default: all)")
    parser.add_argument("--check", action="store_true", help="compare with the file's outputs, write nothing")
    options = parser.parse_args(arguments)
    try:
        paths = find(options.paths)
    except FileNotFoundError as error:
        parser.error(str(error))
    bad = 0
    for path in paths:
        began = time.perf_counter()
        problems: list[str] = []
        try:
            fresh = execute(path)
            if options.check:
                problems = differences(read(path), fresh)
            else:
                write(fresh, path)
        except Failed as error:
            problems = [str(error)]
        except KeyboardInterrupt:
            print(f"stopped in {path.name}; nothing was written to it", file=sys.stderr)
            return 130
        bad += bool(problems)
        seconds = time.perf_counter() - began
        print(f"{'bad' if problems else 'ok ':4}{seconds:6.1f} s  {_shown(path)}", flush=True)
        for problem in problems:
            print("  " + problem.replace("\n", "\n  "))
    return 1 if bad else 0


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if ROOT in path.parents else str(path)


if __name__ == "__main__":
    sys.exit(main())
