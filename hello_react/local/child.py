"""A Python process of our own that never outlives this one, and that Ctrl-C in the terminal does not reach.

`Child(function, **arguments)` runs a function of an importable module in a new process; what it prints is
kept (the last lines), and `report(text)` there is what `wait_for_report` gives here. The child ends when told
to, and also when this process is killed: it watches the pipe to us, and who its parent is. Leaves out:
results other than one line of text.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_MARK = "\x1e"
# -I keeps the working folder off the import path (a json.py there would be run); ours is sent instead.
_COMMAND = ("import json, sys; job = json.loads(sys.stdin.buffer.readline()); sys.path[:] = job['path']; "
            f"from {__name__} import run; run(job)")


class Child:
    """A process that runs `function(**arguments)`.

    Args:
        function: a function at the top of an importable module.
        environ: its environment (ours if None).
        arguments: what JSON can carry; sent through a pipe, so that no list of processes shows a key.

    Attributes:
        lines: the last lines that it printed.
    """

    def __init__(self, function: Callable[..., None], environ: Mapping[str, str] | None = None,
                 **arguments: Any) -> None:
        self.lines: deque[str] = deque(maxlen=30)
        self._report: str | None = None
        self._reported_or_ended = threading.Event()
        self._stopping = threading.Lock()
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _COMMAND], env=environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # Out of reach of the terminal's Ctrl-C, on POSIX and on Windows.
            start_new_session=True, creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0))
        atexit.register(self.stop)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        job = {"path": [entry for entry in sys.path if isinstance(entry, str)], "parent": self._owner,
               "module": function.__module__, "function": function.__name__, "arguments": arguments}
        try:
            self._tell(json.dumps(job).encode() + b"\n")
        except KeyboardInterrupt:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def wait_for_report(self, seconds: float) -> str | None:
        """What it reported; None if it ended without, or `seconds` passed."""
        self._reported_or_ended.wait(seconds)
        return self._report

    def ended(self, seconds: float) -> bool:
        """Whether it ended, after waiting for that up to `seconds`."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def stop(self) -> None:
        """End it, if it still runs; harmless when called again."""
        if os.getpid() != self._owner:  # a fork of us inherits the exit hook, but the child is not its own
            return
        with self._stopping:
            try:
                self._tell(b"stop\n")
                if self._process.stdin:
                    self._process.stdin.close()
                self._process.wait(3)
            except (OSError, ValueError, subprocess.TimeoutExpired):
                pass
            finally:  # also after a second Ctrl-C
                self._process.kill()
                self._process.wait()
                self._reader.join(1)
                atexit.unregister(self.stop)

    def _tell(self, data: bytes) -> None:
        if self._process.stdin:
            try:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # it ended by itself; its last lines say why

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip()
                if line.startswith(_MARK):
                    self._report = line[len(_MARK):]
                    self._reported_or_ended.set()
                elif line:
                    self.lines.append(line)
        self._reported_or_ended.set()


def report(text: str) -> None:
    """In the child: send one line of text to the parent."""
    sys.stdout.write(f"\n{_MARK}{text}\n")
    sys.stdout.flush()


def run(job: dict[str, Any]) -> None:
    """In the child: do the job, watched."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(job["parent"],), daemon=True).start()
    getattr(importlib.import_module(job["module"]), job["function"])(**job["arguments"])


def _watch(parent: int) -> None:
    """End this process when the parent says so or is gone.

    A dead parent closes the pipe, unless a fork of it lives on and holds it open: hence the look at the
    parent's id (tests/test_local.py: test_server_ends_with_a_killed_parent).
    """
    if os.name == "nt":
        os.read(0, 1)
    else:
        while os.getppid() == parent and not select.select([0], [], [], 1.0)[0]:
            pass
    os._exit(1)
