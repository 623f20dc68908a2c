"""The embedded model's server: llama.cpp in a process of its own, on loopback, with a fresh key each time.

`with LocalServer() as server:` gives `server.url`, which any client of the OpenAI protocol can use;
`embedded_llm()` gives a ready client and shares one server in a process. The server ends with its owner,
however that ends. Only one request runs at a time; the text that two prompts begin with is computed once.
LOCAL_MODEL_PATH replaces the model. Leaves out: access from other machines.

    >>> available() in (True, False)
    True
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import MissingExtraError, ModelError, ModelTimeoutError, SettingsError
from ..events import Messages
from ..llm import HelloAgentsLLM, Streamed
from ..settings import Settings
from ..text import printable
from .child import Child, report
from .fetch import Say, fetch_weights, weights_path
from .prompt import ADAPTER, embedded_prompt, reply_grammar

CONTEXT = 8192
"""Tokens that a prompt and its reply may have together: the embedded model's window."""

START_LIMIT = 120.0
"""Seconds that a server may take to start: the embedded model takes one, a large file on a slow disk many."""

NOTE = ("Model: SmolLM2-135M-Instruct, embedded. It is very small (135 million parameters), often wrong, and "
        "knows English only; set LLM_MODEL_ID, LLM_API_KEY and LLM_BASE_URL for a capable one.")
"""What to tell whoever uses the embedded model."""


def available() -> bool:
    """Whether the optional part that runs the model is installed (it is not imported for this)."""
    return importlib.util.find_spec("xllamacpp") is not None


class LocalServer:
    """A running model server; a context manager that stops it.

    Args:
        model_path: a GGUF file. None: LOCAL_MODEL_PATH where that is set, else the embedded model with its
            adapter, fetched first if need be.
        adapter: a LoRA adapter (GGUF) for `model_path`.
        threads: how many cores to use; by default all (at most 8) to read the prompt, then one for the
            embedded model and half of them for others.
        context: tokens that a prompt and its reply may have together; 0 for all that the model can.
        port: where to listen; 0 lets the system choose a free one.
        say: takes messages for a person, such as `print`.

    Attributes:
        url: the base URL, such as "http://127.0.0.1:40123/v1".
        api_key: the key that this server asks for.
        model: the model's name.
        path, adapter: the files in use.
        pid: the server process.

    Raises:
        MissingExtraError: llama.cpp is not installed.
        SettingsError: a file that is no model, a cache folder that can't be used.
        ModelError: the weights can't be fetched, or the server does not start; its last words are shown.
    """

    def __init__(self, model_path: str | Path | None = None, adapter: str | Path | None = None, *,
                 threads: int | None = None, context: int = CONTEXT, port: int = 0, say: Say = None) -> None:
        if not available():
            raise MissingExtraError("The embedded model", "local")
        self.path, self.adapter = _files(model_path, adapter, say)
        self.model = self.path.stem
        self.api_key = secrets.token_hex(16)
        cores = min(8, _cores())
        writing = 1 if self.path == weights_path() else max(1, cores // 2)
        # Threads that spin while they wait for each other slow the server tenfold as soon as another process
        # wants a core. For threads that sleep, the embedded model's layers are too small to share out.
        self._child = Child(
            run_server, {"OMP_WAIT_POLICY": "passive", **os.environ}, path=str(self.path),
            adapter=str(self.adapter or ""), alias=self.model, key=self.api_key, context=context, port=port,
            threads=threads or writing, batch_threads=threads or cores)
        try:
            address = self._started()
        except BaseException:
            self.close()
            raise
        self.url = f"{address.rstrip('/')}/v1"
        self.pid = self._child.pid

    def _started(self) -> str:
        """The server's address, once it answers."""
        until = time.monotonic() + START_LIMIT
        address = self._child.wait_for_report(START_LIMIT)
        while address and time.monotonic() < until:
            if _is_healthy(address):
                return address
            if self._child.ended(0.05):
                break
        if self._child.ended(0):
            said = [re.sub(r"^[\d.]+ \w ", "", printable(line)) for line in self._child.lines]
            # The cause comes first with llama.cpp, last with Python.
            said = [f"The model server could not start with {self.path}:", *said[:2], *said[2:][-2:]]
            raise ModelError("\n  ".join(said))
        raise ModelTimeoutError(f"The model server did not start with {self.path} within {START_LIMIT:g} s.")

    def wait(self) -> None:
        """Wait until the server ends by itself, which it should not."""
        while not self._child.ended(0.5):
            pass

    @property
    def running(self) -> bool:
        return not self._child.ended(0)

    def close(self) -> None:
        """Stop the server; harmless when called again."""
        self._child.stop()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class EmbeddedLLM(HelloAgentsLLM):
    """A client of the embedded model. A reply to the prompt that it was trained on keeps to a grammar: it
    names a tool that is there, and no thought goes in circles. Other prompts are asked freely.
    """

    def stream(self, messages: Messages, **options: Any) -> Iterator[Streamed]:
        """As `HelloAgentsLLM.stream`."""
        given = {**self.extra_body, **(options.get("extra_body") or {})}
        if not options.get("tools") and not {"grammar", "json_schema"} & set(given):
            options["extra_body"] = {**given, **_grammar(messages)}
        yield from super().stream(messages, **options)


def _grammar(messages: Messages) -> dict[str, str]:
    only = messages[0] if isinstance(messages, Sequence) and len(messages) == 1 else None
    content = only.get("content") if isinstance(only, Mapping) else None
    grammar = reply_grammar(content) if isinstance(content, str) else None
    return {"grammar": grammar} if grammar else {}


_shared: dict[tuple[Path, Path | None], LocalServer] = {}
_shared_lock = threading.Lock()


def embedded_llm(say: Say = None, **options: Any) -> EmbeddedLLM:
    """A client of the embedded model; its server is started at the first call and shared in this process.

    Args:
        say: takes messages for a person, such as `print`: the download, and which model it is.
        options: for `HelloAgentsLLM`; by default temperature 0, at most 512 tokens a reply, and a timeout
            of 300 seconds, since a slow machine reads a long prompt for minutes.

    Raises:
        As `LocalServer`.
    """
    if not available():
        raise MissingExtraError("The embedded model", "local")
    with _shared_lock:
        files = _files(None, None, say)
        server = _shared.get(files)
        if server is None or not server.running:
            server = _shared[files] = LocalServer(*files)
            if say:
                say(NOTE if server.path == weights_path() else f"Model: {server.model}, on this machine.")
    client = EmbeddedLLM(model=server.model, api_key=server.api_key, base_url=server.url,
                         **{"temperature": 0, "max_tokens": 512, "timeout": 300, **options})
    client.prompt = embedded_prompt()
    return client


def run_server(path: str, adapter: str, alias: str, key: str, context: int, port: int, threads: int,
               batch_threads: int) -> None:
    """In a child process: serve until the parent ends it."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = path, {alias}
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], port, [key]
    params.n_ctx = context
    # One slot, and 256 MB for the prompts that took turns in it. Trap: with a similarity above 0, runs that
    # begin alike lose their own prefixes (tests/test_local.py: test_growing_prompts_reuse_the_prefix).
    params.n_parallel, params.cache_ram_mib, params.slot_prompt_similarity = 1, 256, 0.0
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = threads, batch_threads
    params.use_jinja, params.warmup, params.offline, params.ui = True, False, True, False
    params.endpoint_slots, params.verbosity = False, 1
    params.sse_ping_interval = 10
    try:
        # Trap: this holds the interpreter until the model is loaded; only then is a dead parent noticed.
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        time.sleep(0.3)  # llama.cpp writes its log, which tells the cause, in a thread of its own
        raise SystemExit(str(error)) from None
    report(server.listening_address)
    threading.Event().wait()


def _files(model_path: str | Path | None, adapter: str | Path | None, say: Say) -> tuple[Path, Path | None]:
    """The files to use, checked."""
    if model_path is None and (chosen := Settings.load().local_model_path):
        return _gguf(chosen, "LOCAL_MODEL_PATH"), None
    if model_path is None:
        return fetch_weights(say), ADAPTER if ADAPTER.exists() else None
    return _gguf(model_path, "The model"), None if adapter is None else _gguf(adapter, "The adapter")


def _gguf(given: str | Path, what: str) -> Path:
    path = Path(os.path.abspath(os.path.expanduser(given)))
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SettingsError(f"{what} is {str(path)!r}, which can't be read: {error.strerror}.") from None
    if magic != b"GGUF":
        raise SettingsError(f"{what} is {str(path)!r}, which is no GGUF file: llama.cpp reads no other kind.")
    return path


def _cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _is_healthy(address: str) -> bool:
    # Not urllib: that would ask a proxy set in the environment.
    connection = http.client.HTTPConnection(address.rpartition("/")[2], timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
