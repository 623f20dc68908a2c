"""The command line as a user runs it: real processes, real servers, every ending and its exit code."""

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from hello_react.cli import main
from tests.servers import DONE as DONE_MARK
from tests.servers import ModelServer, call, chunk, error, events, never_answers, status, text
from tests.tool_servers import SerpApiServer

SEARCH = "Thought: I look it up.\nAction: Calculator[(2123 + 2321) * 312]"
DONE = "Thought: That is it.\nAction: Finish[1386528]"


@pytest.fixture
def model(monkeypatch):
    """A scripted model server, set in the environment; call it with the script."""
    running = []

    def start(*script):
        server = ModelServer(list(script))
        server.__enter__()
        running.append(server)
        monkeypatch.setenv("LLM_MODEL_ID", "scripted")
        monkeypatch.setenv("LLM_API_KEY", "secret-key-1234567890")
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


def command(*arguments, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [sys.executable, "-m", "hello_react", *arguments], capture_output=True, timeout=100, **options
    )


def said(run):
    return run.stdout.decode("utf-8"), run.stderr.decode("utf-8")


def test_a_question_is_answered_step_by_step(model):
    server = model(SEARCH, DONE)
    run = command("--search", "offline", "What is", "(2123 + 2321) * 312?")
    out, err = said(run)
    assert run.returncode == 0, err
    for line in (
        "Step 1",
        "Thought: I look it up.",
        "Action: Calculator[(2123 + 2321) * 312]",
        "Observation: 1386528",
        "Step 2",
        "Answer: 1386528",
    ):
        assert f"{line}\n" in out
    assert re.search(r"\[\d+ \+ \d+ tokens, \d+\.\d s\]", out)
    assert "Search: a small encyclopedia" in err
    assert "Question: What is (2123 + 2321) * 312?\n" in server.bodies[0]["messages"][0]["content"]
    assert "- Calculator: " in server.bodies[0]["messages"][0]["content"]
    assert "\x1b" not in out
    assert len({request.connection for request in server.requests}) == 1


def test_quiet_gives_the_answer_alone(model):
    model(SEARCH, DONE)
    assert said(command("--quiet", "q")) == ("1386528\n", "")


def test_json_is_valid_whatever_a_tool_prints(model, nothing_of_this_machine):  # T16
    (nothing_of_this_machine / "noisy.py").write_text(
        "import os, subprocess, sys\n"
        "def Shout(text):\n    'Shouts.'\n    print('noise'); os.system('echo more noise'); return text.upper()\n"
    )
    model("Thought: x\nAction: Shout[hi]", DONE)
    run = command("--json", "--tool", "noisy.py:Shout", "q")
    result = json.loads(run.stdout)
    assert run.returncode == 0
    assert (result["answer"], result["status"]) == ("1386528", "finished")
    assert result["steps"][0]["calls"] == [{"tool": "Shout", "input": "hi"}]
    assert result["steps"][0]["observations"][0]["text"] == "HI"
    assert result["usage"]["prompt_tokens"] > 0
    assert b"noise" in run.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "code", "words"),
    [
        ([SEARCH] * 9, ["--max-steps", "2"], 1, "no answer within 2 steps"),
        ([SEARCH] * 9, ["--max-steps", "9"], 1, "the same call gave the same result three times"),
        ([SEARCH] * 9, ["--time-limit", "0"], 1, "no answer within 0 seconds"),
        (["One.", "Two.", "Three."], [], 4, "did not keep to the format"),
        ([error(401, "bad key")], [], 3, "LLM_API_KEY"),
        ([error(404, "no such model")], [], 3, "scripted"),
        ([status(200, "<html>hello</html>", **{"Content-Type": "text/html"})], [], 3, "LLM_BASE_URL"),
        ([SEARCH, "About 1.4 million."], ["--max-steps", "1", "--best-effort"], 0, "best answer so far"),
    ],
)
def test_every_ending_has_its_exit_code_and_reason(model, script, arguments, code, words):  # C10
    model(*script)
    run = command("--search", "offline", *arguments, "q")
    out, err = said(run)
    assert run.returncode == code, err
    assert words in err
    assert "Traceback" not in err
    assert "secret-key" not in out + err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], "no question given"),
        (["  "], "no question given"),
        ([], "no question given"),
        (["-"], "no question given"),
        (["--max-steps", "0", "q"], "must be a whole number of at least 1, not '0'"),
        (["--max-steps", "x", "q"], "whole number"),
        (["--max-steps", "-3", "q"], "whole number"),
        (["--max-steps", "++5", "q"], "must be a whole number of at least 1, not '++5'"),
        (["--tool", "json:__version__", "q"], "__version__ is no function, Tool or ToolExecutor\n"),
        (["--time-limit", "soon", "q"], "number of 0 or more"),
        (["--nonsense", "q"], "--nonsense"),
        (["--qiet", "q"], "did you mean --quiet?"),
        (["--replay", "t.jsonl", "q"], "leave out the question"),
        (["--search", "bing", "q"], "invalid choice"),
        (["--tools", "Serach", "q"], "'Serach'"),
        (["--tool", "nothing.here:x", "q"], "nothing.here can't be imported"),
        (["--tool", "json", "q"], "write MODULE:NAME"),
        (["--tool", "json:nothing", "q"], "nothing is not in that module"),
        (["--tool", "os:sep", "q"], "sep is no function"),
        (["--tool", "no_such.py:x", "q"], "there is no file no_such.py"),
        (["--few-shot", "no_such.txt", "q"], "no_such.txt"),
        (["--approve", "q"], "--approve asks on the terminal"),
        (["--search", "serpapi", "q"], "SERPAPI_API_KEY"),
        (["--try-tool", "Calculator"], "write a call such as"),
        (["--try-tool", "Calculator[2**"], "a bracket is not closed; write a call such as"),
        (["--trace", "What is 2+2?"], "no question given; --trace took 'What is 2+2?'"),
        (["--few-shot", "pyproject.toml", "q"], "holds no example"),
        (["--replay", "."], "holds no trace"),
        (["--try-tool", "Calculater[1]"], "Did you mean Calculator?"),
        (["--replay", "no_such.jsonl"], "no_such.jsonl"),
    ],
)
def test_wrong_use_is_one_clear_line_and_exit_2(model, arguments, words):  # C12
    server = model(DONE)
    run = command(*arguments)
    out, err = said(run)
    assert (run.returncode, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert server.requests == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"LLM_MODEL_ID": "m"}, "LLM_API_KEY"),
        ({"LLM_MODEL_ID": "m"}, "Or ask the embedded model, with --local."),
        ({"LLM_MODEL_ID": "m", "LLM_API_KEY": "k1234567"}, "LLM_BASE_URL"),
        (
            {"LLM_MODEL_ID": "m", "LLM_API_KEY": "your-api-key", "LLM_BASE_URL": "http://127.0.0.1:9/v1"},
            "placeholder",
        ),
        ({"LLM_MODEL_ID": "m", "LLM_API_KEY": "k1234567", "LLM_BASE_URL": "127.0.0.1:9/v1"}, "https://"),
        ({"LLM_TIMEOUT": "soon"}, "LLM_TIMEOUT"),
    ],
)
def test_settings_that_can_not_be_used_are_one_line_and_exit_2(monkeypatch, values, words):  # E15, E16
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    run = command("q")
    assert run.returncode == 2
    assert words in said(run)[1]
    assert "Traceback" not in said(run)[1]


def test_a_broken_env_file_is_one_line_and_exit_2(nothing_of_this_machine):  # E06
    (nothing_of_this_machine / ".env").write_text("LLM_MODEL_ID=x", encoding="utf-16")
    run = command("q")
    assert (run.returncode, said(run)[0]) == (2, "")
    assert "UTF-8" in said(run)[1]


def test_no_server_there_is_one_line_and_exit_3(monkeypatch):
    for name, value in {
        "LLM_MODEL_ID": "m",
        "LLM_API_KEY": "k1234567",
        "LLM_BASE_URL": "http://127.0.0.1:9/v1",
    }.items():
        monkeypatch.setenv(name, value)
    run = command("--quiet", "q")
    assert run.returncode == 3
    assert "127.0.0.1:9" in said(run)[1]
    assert "Traceback" not in said(run)[1]


def test_no_model_says_the_ways_to_get_one(monkeypatch, tmp_path):
    (tmp_path / "xllamacpp.py").write_text("raise ImportError")
    script = (
        "import sys, importlib.util; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'xllamacpp' else find(name, *a)\n"
        "from hello_react.cli import main; sys.exit(main(['q']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert run.returncode == 2
    assert "LLM_MODEL_ID" in run.stderr
    assert "hello-react[local]" in run.stderr
    assert len(run.stderr.strip().splitlines()) <= 6
    assert "Traceback" not in run.stderr


def test_a_pipe_is_the_question(model):
    server = model(DONE, DONE)
    for arguments in ([], ["-"]):
        run = command("--quiet", *arguments, stdin=None, input=b"Wie hoch ist der Brocken? {x}\n")
        assert said(run)[0] == "1386528\n"
    assert all(
        "Question: Wie hoch ist der Brocken? {x}\n" in body["messages"][0]["content"]
        for body in server.bodies
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["Sum this up:", "-"], "Question: Sum this up:\n\n{x} and y\n"),
        (["Sum", "this", "up:", "-"], "Question: Sum this up:\n\n{x} and y\n"),
        (["Sum this up:"], "Question: Sum this up:\n"),
        (["6", "-", "2"], "Question: 6 - 2\n"),
    ],
)
def test_a_pipe_is_added_to_the_question_where_a_dash_stands_behind_it(model, words, asked):
    server = model(DONE)
    run = command("--quiet", *words, stdin=None, input=b"{x} and y\n")
    assert said(run)[0] == "1386528\n"
    assert asked in server.bodies[0]["messages"][0]["content"]


def test_a_closed_standard_input_is_wrong_use():
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'hello_react'])",
        ],
        capture_output=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert b"no question given" in run.stderr


def test_a_reader_that_stops_early_is_no_error(model):
    model(*[f"Thought: x\nAction: Calculator[{n}]" for n in range(40)], DONE)
    run = subprocess.Popen(
        [sys.executable, "-m", "hello_react", "--max-steps", "60", "q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    run.stdout.readline()
    run.stdout.close()
    err = run.stderr.read().decode()
    run.stderr.close()
    assert run.wait(60) == 141
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_the_model_is_silent(model, nothing_of_this_machine):  # C05
    server = model(SEARCH, never_answers())
    run = subprocess.Popen(
        [sys.executable, "-m", "hello_react", "--trace", "t.jsonl", "q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(server.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.decode().strip().splitlines()[-1] == "hello-react: Interrupted."
    assert "Traceback" not in err.decode()
    lines = [
        json.loads(line) for line in (nothing_of_this_machine / "t.jsonl").read_text("utf-8").splitlines()
    ]
    assert lines[-1]["event"] == "RunEnded"
    assert any(line.get("event") == "Observation" for line in lines)


def test_settings_tell_where_each_value_comes_from(monkeypatch, nothing_of_this_machine):  # E03
    (nothing_of_this_machine / ".env").write_text(
        "LLM_MODEL_ID=from-file\nLLM_API_KEY=secret-key-1234567890\n"
    )
    monkeypatch.setenv("LLM_MODEL_ID", "from-environment")
    out, err = said(command("--settings"))
    assert "from-environment" in out
    assert "environment" in out
    assert ".env" in out
    assert "secret" not in out + err


def test_settings_name_the_model_in_use_without_secrets(monkeypatch):
    monkeypatch.setenv("LLM_BASE_URL", "https://user:pass123456@x.com/v1?api-key=SECRET0123456789")
    monkeypatch.setenv("LLM_MODEL_ID", "m")
    out, err = said(command("--settings"))
    assert "Model in use: m at https://x.com/v1" in out
    assert "SECRET" not in out + err
    assert "pass123456" not in out + err
    out, err = said(command("--settings", "--model", "other", "--base-url", "http://localhost:1/v1"))
    assert "Model in use: other at http://localhost:1/v1" in out


def test_try_tool_runs_one_tool_as_the_agent_would(model):
    server = model()
    assert said(command("--try-tool", "Calculator[2 + 3 * 4]", "--tools", "calculator"))[0] == "14\n"
    out, err = said(command("--try-tool", "Search[Oslo]", "--search", "offline"))
    assert out.startswith("Oslo")
    assert command("--try-tool", "Calculator[1/0]").returncode == 1
    assert server.requests == []


FAULTY = """\
import json
from hello_react import ToolError

def deeper(text):
    raise RuntimeError("kaputt")

def Boom(text: str) -> str:
    "Booms."
    print("noise")
    return deeper(text)

async def Late(text: str) -> str:
    "Booms too."
    return json.loads(text)

def Speaks(text: str) -> str:
    "Speaks to the model."
    raise ToolError("Write a number.")
"""


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("Boom[x]", "Boom failed: RuntimeError: kaputt (faulty.py, line 5)\n"),
        ("Late[{]", "Late failed: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 "
                    "column 2 (char 1) (faulty.py, line 14)\n"),
        ("Speaks[x]", "Write a number. (faulty.py, line 18)\n"),
    ],
)
def test_try_tool_tells_a_person_where_a_tool_failed(capsys, nothing_of_this_machine, call, told):
    (nothing_of_this_machine / "faulty.py").write_text(FAULTY)
    place = f"faulty.py:{call.partition('[')[0]}"
    assert main(["--tools", "none", "--tool", place, "--try-tool", call]) == 1
    shown = capsys.readouterr()
    assert shown.out == told
    assert ("noise" in shown.err) == call.startswith("Boom")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os\nx = undefined_thing\n", "NameError: name 'undefined_thing' is not defined (mine.py, line 2)"),
        ("\n\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module' (mine.py, line 3)"),
        ("int('a')\n", "ValueError: invalid literal for int() with base 10: 'a' (mine.py, line 1)"),
        ("import json\ndef load():\n    json.loads('')\nload()\n", "line 1 column 1 (char 0) (mine.py, line 3)"),
        ("x = (\n", "(mine.py, line 1)"),
        ("raise SystemExit\n", "SystemExit (mine.py, line 1)"),
    ],
)
@pytest.mark.parametrize("place", ["mine.py", "mine"])
def test_a_tool_file_that_can_not_be_imported_is_told_with_its_line(
    capsys, monkeypatch, nothing_of_this_machine, place, source, told
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    (nothing_of_this_machine / "mine.py").write_text(source)
    assert main(["--tool", f"{place}:x", "q"]) == 2
    assert capsys.readouterr().err.endswith(f"{told}\n")


def test_serpapi_is_the_search_in_use_with_a_key(model, monkeypatch):
    model("Thought: x\nAction: Search[Huawei phone]", DONE)
    with SerpApiServer({"answer_box": {"answer": "Mate 70"}}) as serpapi:
        monkeypatch.setenv("SERPAPI_API_KEY", serpapi.key)
        monkeypatch.setenv("SERPAPI_BASE_URL", serpapi.url)
        run = command("q")
    assert run.returncode == 0, said(run)
    assert "Search: Google, through SerpApi." in said(run)[1]
    assert len(serpapi.requests) == 1


def test_own_tools_few_shot_and_prompt_are_used(model, nothing_of_this_machine):
    (nothing_of_this_machine / "mine.py").write_text(
        "from hello_react import ToolExecutor, Tool\n"
        "def Double(n: int) -> int:\n    'Doubles a number.'\n    return 2 * n\n"
        "tools = ToolExecutor()\n@tools.tool\ndef Triple(n: int) -> int:\n    'Triples a number.'\n    return 3 * n\n"
        "half = Tool('Half', 'Halves a number.', lambda n: float(n) / 2)\n"
    )
    (nothing_of_this_machine / "shots.txt").write_text("Question: one\n---\nQuestion: two\n")
    server = model("Thought: x\nAction: Double[21]", DONE)
    run = command(
        "--tool",
        "mine:Double",
        "--tool",
        "mine.py:tools",
        "--tool",
        "mine:half",
        "--few-shot",
        "shots.txt",
        "--tools",
        "none",
        "--show-prompt",
        "--show-raw",
        "--no-color",
        "q",
    )
    out, err = said(run)
    assert run.returncode == 0, err
    assert "Observation: 42" in out
    assert "--- the prompt ---" in out
    assert "--- the reply as it came ---" in out
    sent = server.bodies[0]["messages"][0]["content"]
    assert (
        "Tools:\n- Double: Doubles a number. Input: whole number.\n- Triple: Triples a number. Input: whole number.\n- Half:"
        in sent
    )
    assert "Question: one\n\nQuestion: two\n" in sent
    assert "Calculator" not in sent


def test_options_of_the_model_reach_the_server(model):
    server = model(DONE)
    command("--model", "other", "--temperature", "0.7", "--max-tokens", "99", "--lang", "zh", "--quiet", "q")
    body = server.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("other", 0.7, 99)
    assert "可用的工具" in body["messages"][0]["content"]


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_approval_is_asked_on_the_terminal(model):
    import pty

    model(SEARCH, DONE)
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "hello_react", "--approve", "--no-color", "q"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(ours, b"not today\n")
    out, err = run.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert b"Run Calculator[(2123 + 2321) * 312]? (y for yes, Enter for no, or say why not)" in err
    assert b"Observation: Calculator was not run: the user refused it: not today" in out


def test_a_console_with_another_encoding_is_no_crash(model, monkeypatch):
    model("Thought: x\nAction: Finish[héllo ☃ 😀 华为]")
    monkeypatch.setenv("PYTHONIOENCODING", "gbk")
    run = command("--quiet", "q")
    assert run.returncode == 0
    assert "华为" in run.stdout.decode("gbk")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    model("Thought: x\nAction: Finish[héllo]")
    assert command("--quiet", "q").stdout == b"h?llo\n"


@pytest.mark.skipif(os.name == "nt", reason="arguments are text there")
def test_arguments_that_are_no_text_are_made_safe(model):  # C08
    server = model(DONE)
    run = subprocess.run(
        [sys.executable.encode(), b"-m", b"hello_react", b"--quiet", b"caf\xe9 \xed\xa0\xbd?"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stderr
    assert "Question: caf\ufffd" in server.bodies[0]["messages"][0]["content"]


def test_a_traced_run_is_shown_again(model, nothing_of_this_machine):
    model(SEARCH, DONE)
    first = command("--search", "offline", "--trace", "t.jsonl", "q")
    again = command("--replay", "t.jsonl")
    assert again.returncode == 0, again.stderr

    def strip(run):
        return re.sub(r"\d+\.\d s", "", said(run)[0])

    assert strip(again) == strip(first)
    assert "secret-key" not in (nothing_of_this_machine / "t.jsonl").read_text("utf-8")


def test_a_replay_tells_the_question_first_and_the_seconds_as_they_were(capsys, monkeypatch):
    from dataclasses import replace

    from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    from hello_react.events import RunEnded
    from hello_react.trace import TraceWriter

    def record(file, ended=True):
        with TraceWriter(file, secrets=()) as writer:
            for event in ReActAgent(ScriptedLLM(["One.", DONE]), ToolExecutor()).stream("How much?"):
                if isinstance(event, RunEnded):
                    steps = tuple(replace(step, seconds=step.number + 0.25) for step in event.result.steps)
                    event = RunEnded(replace(event.result, steps=steps, seconds=3.5))
                if ended or not isinstance(event, RunEnded):
                    writer(event)

    record("t.jsonl")
    assert main(["--replay", "t.jsonl"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "hello-react: A recorded run.\nhello-react: The question was: How much?\n"
    assert re.findall(r"tokens unknown.*", shown.out) == [
        "tokens unknown, 1.2 s]", "tokens unknown, 2.2 s]", "tokens unknown, 3.5 s)"
    ]
    record("broken.jsonl", ended=False)
    assert main(["--replay", "broken.jsonl"]) == 130
    assert "  [tokens unknown]\n" in capsys.readouterr().out  # what is not known is not 0.0 s
    os.mkdir("runs")
    record("runs/b.jsonl")
    record("runs/a.jsonl")
    os.utime("runs/b.jsonl", (1, 1))
    assert main(["--replay", "runs"]) == 0
    assert f"A recorded run ({os.path.join('runs', 'a.jsonl')}).\n" in capsys.readouterr().err


def test_the_file_of_a_trace_is_told_after_the_run(model, capsys):
    model(DONE, error(401, "bad key"), DONE)
    os.mkdir("runs")
    assert main(["--trace", "runs", "q"]) == 0
    (name,) = os.listdir("runs")
    told = f"hello-react: Recorded in {os.path.join('runs', name)}.\n"
    assert capsys.readouterr().err.endswith(told)
    assert main(["--trace", "t.jsonl", "q"]) == 3
    assert "hello-react: Recorded in t.jsonl.\n" in capsys.readouterr().err
    assert main(["--trace", "t.jsonl", "--quiet", "q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("local_model", "code"), [("", 2), ("other.gguf", 0)])
def test_the_embedded_model_is_not_asked_with_native_tool_calls(monkeypatch, capsys, local_model, code):
    from hello_react import ScriptedLLM

    monkeypatch.setenv("LOCAL_MODEL_PATH", local_model)
    monkeypatch.setattr("hello_react.local.embedded_llm", lambda say, **options: ScriptedLLM(["It is 7."]))
    assert main(["--local", "--agent", "tools", "q"]) == code
    assert ("leave out --agent tools" in capsys.readouterr().err) == (code == 2)


def test_a_language_that_the_embedded_model_does_not_know_is_told(monkeypatch, capsys):
    from hello_react import ScriptedLLM

    monkeypatch.setattr("hello_react.local.embedded_llm", lambda say, **options: ScriptedLLM([DONE] * 2))
    main(["--local", "q"])
    assert "--lang" not in capsys.readouterr().err
    main(["--local", "--lang", "zh", "q"])
    assert "knows English only: --lang zh changes nothing" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_long_lines_for_a_person_break_between_words(monkeypatch):
    import pty

    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    run = subprocess.run([sys.executable, "-m", "hello_react", "--few-shot", "no such file " * 9, "q"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
    lines = os.read(ours, 9_999).decode().splitlines()
    os.close(ours)
    os.close(theirs)
    assert run.returncode == 2
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(lines).startswith(f"hello-react: --few-shot: {'no such file ' * 9}")


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hello-react 0.")
    assert main(["--help"]) == 0
    assert "Exit codes" in capsys.readouterr().out


def test_json_of_a_failed_run_is_still_json(model):
    model(SEARCH, error(401, "bad key"))
    run = command("--json", "q")
    result = json.loads(run.stdout)
    assert run.returncode == 3
    assert (result["status"], result["answer"], len(result["steps"])) == ("failed", None, 1)
    assert "LLM_API_KEY" in result["reason"]


def test_in_process_json_works_where_standard_output_is_no_file(model, monkeypatch, capsys):
    model(text(DONE))
    assert main(["--json", "q"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "1386528"


def test_native_tool_calls_from_the_command_line(model):
    calls = [
        call(0, "a", "Calculator", '{"expression": "2+3*4"}'),
        call(1, "b", "Calculator", '{"expression": "6*7"}'),
    ]
    server = model(
        events(chunk(None, tool_calls=calls), chunk("", "tool_calls"), DONE_MARK), text("14 and 42.")
    )
    out, err = said(command("--agent", "tools", "--tools", "calculator", "What are 2+3*4 and 6*7?"))
    assert "Observation: 14\nObservation: 42\n" in out
    assert out.count("14 and 42.") == 1
    assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["Calculator"]
    run = command("--agent", "tools", "--few-shot", __file__, "q")
    assert run.returncode == 2
    assert "--few-shot is for the text agent" in said(run)[1]


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_a_terminal_without_a_question_opens_a_chat(model):
    import pty

    server = model(SEARCH, DONE, "Thought: easy\nAction: Finish[You asked for 312 times something.]")
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "hello_react", "--no-color", "--search", "offline"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(ours, "What is it?\nAnd what did I ask?\n退出\n".encode())
    out, err = run.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert run.returncode == 0, err
    assert out.decode().count("Answer: ") == 2
    assert "Question: What is it?\nAnswer: 1386528\n" in server.bodies[-1]["messages"][0]["content"]


def test_log_records_go_to_standard_error_as_json_lines(model):
    model(SEARCH, DONE)
    run = command("--quiet", "--log-json", "--search", "offline", "q")
    out, err = said(run)
    assert out == "1386528\n"
    records = [json.loads(line) for line in err.splitlines()]
    assert any(record["message"].startswith("run ended") or "run" in record["message"] for record in records)
    assert "secret-key" not in err
    assert "INFO" in said(command("--quiet", "--log-level", "info", "--search", "offline", "q"))[1]


def test_a_telemetry_endpoint_that_is_down_does_not_disturb(model):
    pytest.importorskip("opentelemetry.sdk")
    model(SEARCH, DONE)
    run = command("--quiet", "--otel", "http://127.0.0.1:9", "--search", "offline", "q")
    assert (run.returncode, said(run)[0]) == (0, "1386528\n")
    assert "Traceback" not in said(run)[1]


def test_json_holds_any_sign_an_answer_may_have(model):
    model("Thought: x\nAction: Finish[a\x7fb\x9bc\u202ed\u2028e 华为 \x1b[2J]")
    run = command("--json", "q")
    assert json.loads(run.stdout)["answer"] == "a\x7fb\x9bc\u202ed\u2028e 华为 \x1b[2J"
    assert "华为" in run.stdout.decode("utf-8")
    assert not re.search("[\x7f-\x9f\x1b\u202e]", run.stdout.decode("utf-8"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["q"], ["--json", "q"], ["--settings"], ["--version"]])
def test_a_full_disk_is_one_line(model, arguments):
    model(SEARCH, DONE)
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-m", "hello_react", *arguments], stdout=full, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, timeout=60)
    assert run.returncode == 2
    assert b"Writing failed: No space left on device." in run.stderr
    assert b"Traceback" not in run.stderr
    assert b"Exception ignored" not in run.stderr


@pytest.mark.skipif(os.name == "nt", reason="shell redirection")
@pytest.mark.parametrize(("closed", "arguments"), [(">&-", "q"), ("2>&-", "--json q"), ("2>&-", "--quiet q"), (">&- 2>&-", "q")])
def test_closed_standard_streams_are_no_crash(model, closed, arguments):
    model(SEARCH, DONE)
    run = subprocess.run(["sh", "-c", f"'{sys.executable}' -m hello_react {arguments} {closed}"], capture_output=True,
                         stdin=subprocess.DEVNULL, timeout=60)
    assert run.returncode == 0
    assert b"Traceback" not in run.stderr
    if closed[1:] == ">&-" and "--quiet" in arguments:
        assert run.stdout == b"1386528\n"


def test_a_tool_module_may_print_import_neighbours_and_hold_dataclasses(model, nothing_of_this_machine):
    folder = nothing_of_this_machine / "sub"
    folder.mkdir()
    (folder / "neighbour.py").write_text("def shout(text):\n    return text.upper()\n")
    (folder / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom neighbour import shout\n"
        "print('loading')\n@dataclass\nclass Place:\n    city: str\n"
        "def Shout(text: str) -> str:\n    'Shouts.'\n    return shout(text)\n")
    model("Thought: x\nAction: Shout[hi]", DONE)
    run = command("--json", "--tool", "sub/mine.py:Shout", "q")
    assert json.loads(run.stdout)["steps"][0]["observations"][0]["text"] == "HI"
    (folder / "leaves.py").write_text("import sys\nsys.exit()\n")
    run = command("--tool", "sub/leaves.py:x", "q")
    assert run.returncode == 2
    assert "can't be imported: SystemExit" in said(run)[1]


@pytest.mark.skipif(os.name == "nt", reason="locales")
def test_a_question_survives_the_plainest_locale(model):
    server = model(DONE)
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = subprocess.run([sys.executable, "-m", "hello_react", "--quiet", "华为最新的手机"], capture_output=True, env=env,
                         stdin=subprocess.DEVNULL, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "Question: 华为最新的手机\n" in server.bodies[0]["messages"][0]["content"]


def test_a_chat_needs_neither_quiet_nor_json(model):
    pty = pytest.importorskip("pty")
    model(DONE)
    ours, theirs = pty.openpty()
    run = subprocess.run([sys.executable, "-m", "hello_react", "--quiet"], stdin=theirs, capture_output=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert run.returncode == 2
    assert b"need a question" in run.stderr
