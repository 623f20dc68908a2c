"""The chat, with lines from a list, from a pipe, and typed on a real terminal (a pseudo-terminal)."""

import codecs
import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest

from hello_react import FunctionLLM, ReActAgent, ScriptedLLM, ToolExecutor
from hello_react.chat import EXITS, HELP, LEAVE, PROMPT, WELCOME, chat
from hello_react.errors import ModelConnectionError, TraceError
from hello_react.events import RunEnded
from hello_react.memory import Conversation
from hello_react.trace import read


def finish(answer):
    return f"Thought: I know it.\nAction: Finish[{answer}]"


@dataclass
class Talk:
    """What came of a chat over prepared lines."""

    code: int
    out: str
    err: str
    conversation: Conversation
    model: ScriptedLLM
    prompts: list = field(default_factory=list)


def talk(lines, replies=(), *, tools=None, conversation=None, printer=lambda event: None, **options):
    """A chat over `lines`, then the end of input; an exception among them is raised in place of a line."""
    waiting, prompts = list(lines), []
    conversation = Conversation() if conversation is None else conversation
    model = ScriptedLLM(replies)
    out, err = io.StringIO(), io.StringIO()

    def read(prompt):
        prompts.append(prompt)
        line = waiting.pop(0) if waiting else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line

    agent = ReActAgent(model, tools or ToolExecutor())
    code = chat(agent, read=read, printer=printer, conversation=conversation, out=out, err=err, **options)
    assert not waiting or waiting == ["unread"]
    return Talk(code, out.getvalue(), err.getvalue(), conversation, model, prompts)


# --- questions


def test_questions_share_a_conversation():
    done = talk(["I am Ada.", "Who am I?"], [finish("Hello!"), finish("Ada")])
    assert done.code == 0
    assert done.conversation.turns() == [("I am Ada.", "Hello!"), ("Who am I?", "Ada")]
    assert "Question: I am Ada." in done.model.calls[1][0]["content"]
    assert done.prompts == [PROMPT] * 3
    assert done.out == f"{WELCOME}\n\n"
    assert done.err == ""


def test_without_a_printer_the_run_is_printed_once():
    done = talk(["q"], [finish("fine")], printer=None)
    assert done.out.count("Answer: fine") == 1


@pytest.mark.parametrize("line", [*EXITS, "EXIT", "  quit \t", "/exit", "/quit", "Exit\r"])
def test_words_that_leave(line):
    done = talk([line, "unread"])
    assert done.code == 0
    assert done.model.calls == []


@pytest.mark.parametrize("line", ["exit the loop: how?", "quit?", "/etc/hosts: what is it?"])
def test_lines_that_are_questions(line):
    assert talk([line], [finish("x")]).conversation.turns() == [(line, "x")]


def test_blank_lines_are_ignored():
    done = talk(["", "   ", "\t\r\n", "\x00", "/reset"])
    assert done.model.calls == []
    assert done.err == ""


def test_a_line_that_cannot_be_sent_is_made_safe():
    done = talk(["a\ud83db\x00"], [finish("x")])
    assert done.conversation.turns() == [("a\ufffdb", "x")]
    done.model.calls[0][0]["content"].encode()


@pytest.mark.parametrize("end", [EOFError(), OSError(5, "Input/output error")])
def test_the_end_of_input(end):
    assert talk([end]).code == 0


def test_a_failure_of_the_model_ends_the_answer_only():
    done = talk(["q1", "q2"], [ModelConnectionError("No server at 127.0.0.1."), finish("x")])
    assert done.err == "No server at 127.0.0.1.\n"
    assert done.conversation.turns() == [("q2", "x")]
    assert done.code == 0


def test_a_run_without_an_answer_leaves_nothing():
    done = talk(["q1", "q2"], ["prose"] * 3 + [finish("x")], printer=None)
    assert done.conversation.turns() == [("q2", "x")]
    assert "did not keep to the format" in done.err


def test_whatever_a_client_raises_ends_the_answer_only():
    done = talk(["q1", "q2"], [ConnectionError("network down"), finish("x")])
    assert done.err == "ConnectionError: network down\n"
    assert done.conversation.turns() == [("q2", "x")]


def test_what_a_printer_raises_is_raised():
    def broken(event):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        talk(["q1", "q2"], [finish("x")], printer=broken)


def test_ctrl_c_at_the_prompt_says_how_to_leave():
    done = talk([KeyboardInterrupt(), "q"], [finish("x")])
    assert done.out == f"{WELCOME}\n\n{LEAVE}\n\n"
    assert len(done.conversation) == 1


def test_ctrl_c_ends_the_answer_only():
    tools, seen, stops = ToolExecutor(), [], [KeyboardInterrupt()]

    def interrupt():
        if stops:
            raise stops.pop()
        return "done"

    tools.register_tool("Wait", "Waits.", interrupt, timeout=None)
    replies = ["Action: Wait[]", finish("x")]
    done = talk(["q1", "q2"], replies, tools=tools, printer=seen.append)
    assert done.out == f"{WELCOME}\n(Stopped.)\n\n"
    assert done.conversation.turns() == [("q2", "x")]
    ends = [event.result.status for event in seen if isinstance(event, RunEnded)]
    assert ends == ["interrupted", "finished"]


def test_control_signs_are_shown_not_obeyed():
    done = talk(["/\x1b[2J", "q"], [ModelConnectionError("said: \x1b]0;title\x07")])
    assert "\x1b" not in done.err
    assert "/\\x1b[2J" in done.err


# --- commands


def test_help_names_every_command():
    done = talk(["/help"])
    assert HELP in done.out
    for word in ("/reset", "/save FILE", "/load FILE", "/tools", "/trace FILE", "/help", *EXITS):
        assert word in done.out


@pytest.mark.parametrize("line", ["help", "Help", "?", "/HELP"])
def test_help_is_understood_without_its_sign(line):
    assert HELP in talk([line]).out


@pytest.mark.parametrize("line", ["/what", "/", "/?", "/savex f", "//"])
def test_an_unknown_command(line):
    done = talk([line], [finish("x")])
    if line == "//":  # more than one slash: a path, so a question
        assert len(done.conversation) == 1
        return
    assert done.err == (f"There is no command {line.split()[0]}. "
                        "Commands: /reset, /save, /load, /tools, /trace, /help.\n")
    assert done.model.calls == []


def test_reset():
    done = talk(["q1", "/Reset", "q2"], [finish("a1"), finish("a2")])
    assert done.conversation.turns() == [("q2", "a2")]
    assert "q1" not in done.model.calls[1][0]["content"]


def test_tools():
    assert "There are no tools." in talk(["/tools"]).out
    tools = ToolExecutor()
    tools.register_tool("Length", "Counts letters.", len)
    assert "- Length: Counts letters." in talk(["/tools"], tools=tools).out


def test_save_and_load(tmp_path):
    path = tmp_path / "my talk.jsonl"
    done = talk(["q1", f"/save {path}", "/reset", "q2", f"/load \t '{path}'", "q3"],
                [finish("a1"), finish("a2"), finish("a3")])
    assert done.conversation.turns() == [("q1", "a1"), ("q3", "a3")]
    assert f"Saved 1 turn to {path}.\n" in done.out
    assert f"Loaded 1 turn from {path}.\n" in done.out
    assert done.err == ""


def test_loading_keeps_calls_and_the_window(tmp_path):
    path = tmp_path / "talk.jsonl"
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": {
        "name": "Clock", "arguments": "{}"}}]}
    saved = Conversation()
    saved.add("q1", "a1")
    saved.add("q2", "a2", [call, {"role": "tool", "tool_call_id": "x", "content": "noon"}])
    saved.save(path)
    done = talk([f"/load {path}"], conversation=Conversation(max_turns=1))
    assert list(done.conversation) == list(saved)
    assert done.conversation.turns() == [("q2", "a2")]


def test_a_home_folder_in_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    talk(["/save ~/talk.jsonl"])
    assert (tmp_path / "talk.jsonl").exists()


def test_files_that_cannot_be_loaded_leave_the_conversation(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    done = talk(["q", f"/load {path}", f"/load {tmp_path / 'missing'}", f"/load {tmp_path}",
                 f"/save {tmp_path}", "/load", "/save  "], [finish("a")])
    lines = done.err.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith(f"{path} is not a saved conversation. ")
    assert "kept as notes.txt.unreadable-1" in lines[0]
    assert lines[4:] == ["Which file? /load FILE", "Which file? /save FILE"]
    assert done.conversation.turns() == [("q", "a")]


def test_saving_where_no_file_can_be_goes_on(tmp_path):
    done = talk([f"/save {tmp_path.anchor}", "q"], [finish("a")])
    assert done.err == f"{tmp_path.anchor} is no file name: it is the topmost folder.\n"
    assert done.conversation.turns() == [("q", "a")]


def test_saving_over_another_file_and_loading_a_damaged_one(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    done = talk(["q", f"/save {path}"], [finish("a")])
    kept = (tmp_path / "notes.txt.unreadable-1").resolve()
    was = "What was there before is no conversation that this version reads"
    assert f"{was}; it is kept as {kept}." in done.out
    assert kept.read_text() == "my notes"
    with path.open("a") as file:
        file.write('{"question": "half')
    done = talk([f"/load {path}"])
    assert f"Loaded 1 turn from {path}. Lines that could not be read: 1.\n" in done.out


def test_trace(tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    done = talk(["q1", f"/trace {first}", "q2", f"/trace {second}", "q3", "/trace", "q4", "/trace"],
                [finish(f"a{number} key-0123456789") for number in range(1, 5)], secrets=("key-0123456789",))
    for path, number in ((first, 2), (second, 3)):
        text = path.read_text(encoding="utf-8")
        assert "key-0123456789" not in text
        [[started, *_]] = read(path).runs
        assert started.question == f"q{number}"
        assert f"Recording in {path}.\n" in done.out
    assert f"Recorded in {second}.\n" in done.out
    assert done.err == "Nothing is being recorded. /trace FILE starts that.\n"


def test_trace_from_the_start_is_whole_at_the_end(tmp_path):
    path = tmp_path / "trace.jsonl"
    talk(["q1", "exit"], [finish("a1")], trace=str(path))
    assert isinstance(read(path).runs[0][-1], RunEnded)


def test_traces_that_cannot_be_written(tmp_path):
    (tmp_path / "notes.txt").write_text("my notes")
    good = tmp_path / "good.jsonl"
    done = talk([f"/trace {good}", f"/trace {tmp_path / 'nowhere' / 'x'}",
                 f"/trace {tmp_path / 'notes.txt'}", "q"], [finish("a")])
    assert len(done.err.splitlines()) == 2
    assert read(good).runs[0][0].question == "q"  # the one before goes on
    assert (tmp_path / "notes.txt").read_text() == "my notes"
    with pytest.raises(TraceError):
        talk([], trace=str(tmp_path / "nowhere" / "x"))


def test_a_trace_on_a_full_disk_is_said(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "trace.jsonl"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limit[1]))
    try:
        done = talk([f"/trace {path}", "q", "/trace", "/trace"], [finish("a")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert done.conversation.turns() == [("q", "a")]
    failure, idle = done.err.splitlines()
    assert str(path) in failure
    assert "File too large" in failure
    assert idle == "Nothing is being recorded. /trace FILE starts that."


# --- standard input that is no terminal

SCRIPT = """
import sys, time
from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
from hello_react.chat import chat
from hello_react.console import Printer

def wait(seconds: float) -> str:
    "Waits."
    time.sleep(seconds)
    return "waited"

tools = ToolExecutor()
tools.register_tool("Wait", "Waits.", wait)
model = ScriptedLLM([part.replace("|", "\\n") for part in sys.argv[1:]])
code = chat(ReActAgent(model, tools), printer=Printer(sys.stdout, reasons=sys.stderr))
print("asked:", [call[0]["content"].rstrip().split("Question: ")[-1] for call in model.calls])
sys.exit(code)
"""
OK = "Thought: Easy.|Action: Finish[fine]"


def piped(input, *replies, **options):
    return subprocess.run([sys.executable, "-X", "utf8", "-c", SCRIPT, *replies], input=input, timeout=60,
                          capture_output=True, **options)


def test_lines_from_a_pipe():
    done = piped("你好吗？\n\nexit\nnot read\n".encode(), OK)
    assert done.returncode == 0
    out = done.stdout.decode()
    assert "Answer: fine" in out
    assert "asked: ['你好吗？']" in out
    assert PROMPT not in out
    assert WELCOME not in out
    assert "\x1b" not in out
    assert done.stderr == b""


def test_a_pipe_without_a_last_line_end_and_an_empty_one():
    done = piped(b"q", OK)
    assert (done.returncode, b"asked: ['q']" in done.stdout) == (0, True)
    done = piped(b"")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [b"asked:", b"[]"], b"")


def test_bytes_that_are_no_text():
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = piped(b"a\xff\xe4b\nc\xe4", OK, OK, env=environment)
    assert done.returncode == 0
    assert "asked: ['a\ufffd\ufffdb', 'c\ufffd']" in done.stdout.decode()


@pytest.mark.skipif(os.name == "nt", reason="closes a file descriptor as shells do")
def test_closed_standard_input():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [b"asked:", b"[]"], b"")


def test_standard_input_closed_in_this_process(monkeypatch):
    for stream in (None, io.StringIO()):
        if stream:
            stream.close()
        monkeypatch.setattr(sys, "stdin", stream)
        out = io.StringIO()
        assert chat(ReActAgent(ScriptedLLM([]), ToolExecutor()), out=out, err=out) == 0
        assert out.getvalue() == ""


def test_ctrl_c_without_a_terminal_is_raised(monkeypatch):
    def interrupted(messages):
        raise KeyboardInterrupt

    class Broken(io.StringIO):
        def readline(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Broken())
    agent = ReActAgent(FunctionLLM(interrupted), ToolExecutor())
    with pytest.raises(KeyboardInterrupt):
        chat(agent, out=io.StringIO(), err=io.StringIO())


def test_ctrl_c_during_an_answer_without_a_terminal_is_raised(monkeypatch):
    def interrupted(messages):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", io.StringIO("q1\nq2\n"))
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        chat(ReActAgent(FunctionLLM(interrupted), ToolExecutor()), out=out, err=io.StringIO())
    assert "(Stopped.)" not in out.getvalue()


def test_a_conversation_is_not_saved_over_its_own_trace(tmp_path):
    path = tmp_path / "t.jsonl"
    done = talk([f"/trace {path}", "q", f"/save {path}", "/trace"], [finish("a")])
    assert f"{path} is being recorded: choose another name." in done.err
    assert f"Recorded in {path}." in done.out
    assert "hello_react trace" in path.read_text().splitlines()[0]


# --- a terminal


class Terminal:
    """The script on a pseudo-terminal of its own: type into it, wait for what it shows."""

    def __init__(self, *replies, redirect=None):
        import pty

        self.master, self.slave = pty.openpty()
        takes_terminal = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", takes_terminal + SCRIPT, *replies], start_new_session=True,
            stdin=self.slave, stdout=redirect or self.slave, stderr=self.slave,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"})
        self.shown, self.position = "", 0
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, text, again=""):
        """Read until `text` is shown, after what was waited for last; type `again` if nothing comes of it."""
        deadline = time.monotonic() + 30
        while (found := self.shown.find(text, self.position)) < 0:
            left = max(0, deadline - time.monotonic())
            ready, _, _ = select.select([self.master], [], [], min(left, 3) if again else left)
            if again and not ready and left:
                self.type(again)
                continue
            assert ready, f"{text!r} did not come; shown: {self.shown!r}"
            self.shown += self.decode(os.read(self.master, 4096))
        self.position = found + len(text)

    def leave(self):
        self.wait_for("asked:")
        self.wait_for("\n")
        assert self.process.wait(60) == 0
        return re.sub(r"\x1b\[\?[0-9]+[hl]|\r", "", self.shown)


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses a Linux pseudo-terminal")


@on_linux
def test_typed_question_and_ctrl_d():
    with Terminal(OK) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("天气好吗？\r")
        terminal.wait_for("Answer: fine")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        shown = terminal.leave()
    assert shown.startswith(f"{WELCOME}\n{PROMPT}天气好吗？\n")
    assert shown.endswith(f"{PROMPT}\nasked: ['天气好吗？']\n")  # what comes next begins a new line


@on_linux
def test_ctrl_c_ends_the_answer_and_not_the_chat():
    with Terminal("Action: Wait[600]", OK) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("slow\r")
        terminal.wait_for("Action: Wait[600]")
        terminal.type("\x03")
        terminal.wait_for("(Stopped.)")
        terminal.wait_for(PROMPT)
        terminal.type("quick\r")
        terminal.wait_for("Answer: fine")
        terminal.wait_for(PROMPT)
        terminal.type("退出\r")
        assert "asked: ['slow', 'quick']" in terminal.leave()


@on_linux
def test_ctrl_c_at_the_prompt_stays():
    with Terminal(OK) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("\x03")
        # Just after the prompt was written, readline may miss the key: one presses it again.
        terminal.wait_for(LEAVE, again="\x03")
        terminal.wait_for(PROMPT)
        terminal.type("half a quest\x03")
        terminal.wait_for(LEAVE, again="\x03")
        terminal.wait_for(PROMPT)
        terminal.type("q\r")
        terminal.wait_for("Answer: fine")
        terminal.wait_for(PROMPT)
        terminal.type("exit\r")
        assert "asked: ['q']" in terminal.leave()


@on_linux
def test_arrow_keys():
    pytest.importorskip("readline")
    up, left = "\x1b[A", "\x1b[D"
    with Terminal(OK, OK) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"a c{left}b\r")
        terminal.wait_for("Answer: fine")
        terminal.wait_for(PROMPT)
        terminal.type(f"{up}!\r")
        terminal.wait_for("Answer: fine")
        terminal.wait_for(PROMPT)
        terminal.type(f"xit{left * 3}e\r")
        assert "asked: ['a bc', 'a bc!']" in terminal.leave()


@on_linux
def test_output_in_a_file_and_input_from_a_terminal(tmp_path):
    path = tmp_path / "answers.txt"
    with path.open("wb") as file, Terminal(OK, redirect=file) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("q\r")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.process.wait(60) == 0
    text = path.read_text()
    assert "Answer: fine" in text
    assert PROMPT not in text
