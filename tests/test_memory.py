"""The conversation: its window, what it keeps of tool calls, its files."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
from hello_react.errors import HelloReactError, ModelError
from hello_react.memory import Conversation, Exchange, MemoryFileError
from hello_react.text import estimate_tokens

FINISH = "Thought: I know it.\nAction: Finish[{}]"


def calls(*ids):
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": name, "type": "function",
                            "function": {"name": "Search", "arguments": '{"q": "x"}'}} for name in ids]}


def result(name, text="found"):
    return {"role": "tool", "tool_call_id": name, "content": text}


def filled(count, **options):
    talk = Conversation(**options)
    for number in range(count):
        talk.add(f"q{number}", f"a{number}", [calls(f"c{number}"), result(f"c{number}")])
    return talk


def check_chat_form(messages, system=None):
    """What servers ask of a history: it holds for every window."""
    if system:
        assert messages[0] == {"role": "system", "content": system}
        messages = messages[1:]
    assert all(message["role"] != "system" for message in messages)
    if messages:
        assert messages[0]["role"] == "user"
        assert messages[-1]["role"] == "assistant"
        assert "tool_calls" not in messages[-1]
    open_calls = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
            assert message["content"] or open_calls
    assert not open_calls


# --- turns


def test_the_window_holds_the_newest_turns_oldest_first():
    talk = filled(5, max_turns=2)
    assert talk.turns() == [("q3", "a3"), ("q4", "a4")]
    assert len(talk) == 5
    assert [turn.question for turn in talk] == ["q0", "q1", "q2", "q3", "q4"]


def test_the_window_ends_at_its_tokens():
    talk = Conversation(max_tokens=10, count_tokens=len)
    talk.add("1", "1")
    talk.add("12345678", "2")
    talk.add("1", "2")
    assert talk.turns() == [("1", "2")]  # the middle one does not fit, and nothing older jumps over it


def test_chinese_is_counted_by_signs():
    talk = Conversation(max_tokens=100)
    for number in range(10):
        talk.add("问" * 15, f"{number}" + "答" * 15)  # 31 tokens, and not one blank
    assert [answer[0] for _, answer in talk.turns()] == ["7", "8", "9"]


@pytest.mark.parametrize("options", [
    {"max_turns": 0}, {"max_turns": -1}, {"max_turns": 1.5}, {"max_turns": True}, {"max_turns": None},
    {"max_tokens": 0}, {"max_tokens": -4}, {"max_tokens": "many"},
    {"count_tokens": 3}, {"count_tokens": "words"},
])
def test_options_that_cannot_be_used(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Conversation(**options)


@pytest.mark.parametrize(("question", "answer"), [
    ("q", None), ("q", ""), ("q", " \n"), ("q", 7), (None, "a"), ("", "a"), ("\t", "a"), ("q", "\x00"),
])
def test_no_turn_without_question_and_answer(question, answer):
    talk = Conversation()
    with pytest.raises(ValueError, match="not empty"):
        talk.add(question, answer)
    assert len(talk) == 0


def test_repr_and_clear():
    talk = filled(1)
    assert repr(talk) == "<Conversation: 1 turn>"
    talk.clear()
    assert repr(talk) == "<Conversation: 0 turns>"
    assert talk.turns() == []
    assert talk.messages() == []


def test_text_that_cannot_be_sent_is_made_safe():
    talk = Conversation()
    talk.add("a\ud800b", "c\x00d", [calls("x"), result("x", "e\udfff")])
    assert talk.turns() == [("a\ufffdb", "cd")]
    assert talk.messages()[2]["content"] == "e\ufffd"


# --- too long


def test_an_answer_larger_than_the_window_is_cut_with_a_mark():
    talk = Conversation(max_tokens=100)
    talk.add("Tell me all.", "word " * 10_000)
    [(question, answer)] = talk.turns()
    assert question == "Tell me all."
    assert re.search(r"^word word .*\n\[cut: \d+ of 50,000 characters shown\]$", answer, re.DOTALL)
    assert 80 < estimate_tokens(question) + estimate_tokens(answer) <= 100
    assert next(iter(talk)).answer == "word " * 10_000  # kept whole


def test_a_question_larger_than_the_window_is_cut_and_so_are_both():
    talk = Conversation(max_tokens=100)
    talk.add("问" * 100_000, "Short.")
    [(question, answer)] = talk.turns()
    assert question.startswith("问问")
    assert "[cut: " in question
    assert answer == "Short."
    talk.add("问" * 1_000, "答" * 1_000)
    [(question, answer)] = talk.turns()
    assert "[cut: " in question
    assert "[cut: " in answer
    assert estimate_tokens(question) + estimate_tokens(answer) <= 100


def test_older_turn_larger_than_the_window_is_cut_into_what_is_left():
    talk = Conversation(max_tokens=100)
    talk.add("old", "o" * 10_000)
    talk.add("new", "n" * 200)
    old, new = talk.turns()
    assert new == ("new", "n" * 200)
    assert old[0] == "old"
    assert "[cut: " in old[1]
    assert sum(estimate_tokens(text) for turn in (old, new) for text in turn) <= 100


def test_the_smallest_window_still_shows_something():
    talk = Conversation(max_turns=1, max_tokens=1)
    talk.add("Why is that?", "Because of the wind.")
    [(question, answer)] = talk.turns()
    assert question.startswith("W\n[cut: 1 of 12")
    assert answer.startswith("B\n[cut: 1 of 20")
    check_chat_form(talk.messages("Be kind."), "Be kind.")
    talk.add("older ones are not cut to nothing", "x" * 100)
    assert len(talk.turns()) == 1
    two = Conversation(max_tokens=4)
    two.add("x" * 100, "y" * 100)
    two.add("n", "n")
    assert two.turns() == [("n", "n")]


def test_a_counter_that_always_says_too_much_does_not_hang():
    talk = Conversation(max_tokens=5, count_tokens=lambda text: 10**9)
    talk.add("question", "answer")
    assert len(talk.turns()) == 1


# --- tool calls


def test_messages_without_calls():
    talk = Conversation()
    assert talk.messages("Be brief.") == [{"role": "system", "content": "Be brief."}]
    talk.add("q", "a")
    assert talk.messages("Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
    ]


def test_calls_stand_between_question_and_answer():
    group = [calls("x", "y"), result("x"), result("y")]
    talk = Conversation()
    talk.add("q", "a", group)
    question, *between, answer = talk.messages()
    assert (question["content"], between, answer["content"]) == ("q", group, "a")
    assert talk.turns() == [("q", "a")]


def test_what_was_added_cannot_be_changed_from_outside():
    message = calls("x")
    talk = Conversation()
    talk.add("q", "a", [message, result("x")])
    message["tool_calls"].clear()
    talk.messages()[1]["tool_calls"].clear()
    assert talk.messages()[1] == calls("x")


@pytest.mark.parametrize("messages", [
    [calls("x")],
    [result("x")],
    [calls("x", "y", "z"), result("y")],
    [calls("x"), result("y")],
    [calls("x"), result("x"), result("x")],
    [calls("x"), {"role": "user", "content": "?"}, result("x")],
    [result("x"), calls("x")],
    [{"role": "assistant", "tool_calls": "x"}, result("x")],
    [{"role": "assistant", "tool_calls": [{"id": None}]}, result(None)],
    [{"role": "assistant", "tool_calls": ["x"]}, result("x")],
    [{"role": "assistant", "tool_calls": [{"id": "x"}]}, result("x")],
    [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "now"}}]}, result("x")],
    ["text", None, 3],
    [{"role": "system", "content": "other"}, {"role": "assistant", "content": "the answer, twice"}],
])
def test_only_calls_with_all_their_results_are_kept(messages):
    talk = Conversation()
    talk.add("q", "a", messages)
    assert talk.messages() == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_messages_that_are_no_json():
    with pytest.raises(ValueError, match="must be JSON"):
        Conversation().add("q", "a", [{"role": "tool", "content": object()}])
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError):
        Conversation().add("q", "a", loop)


def test_calls_that_share_an_id_are_left_out():
    talk = Conversation()
    one = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "a", "content": "noon"}
    talk.add("When?", "At noon.", [{"role": "assistant", "content": "", "tool_calls": [one, one]}, result, result])
    assert [message["role"] for message in talk.messages()] == ["user", "assistant"]


def test_calls_too_long_for_the_window_go_as_one_and_their_answer_stays():
    talk = Conversation(max_tokens=200)
    talk.add("old", "old", [calls("o"), result("o")])
    talk.add("q", "a", [calls("x", "y"), result("x", "long " * 1_000), result("y")])
    messages = talk.messages()
    check_chat_form(messages)
    assert " ".join(message["role"] for message in messages) == "user assistant tool assistant user assistant"
    assert messages[-2:] == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_every_window_has_the_form_that_servers_ask_for():
    for turns in range(1, 6):
        for tokens in range(1, 400, 7):
            talk = filled(4, max_turns=turns, max_tokens=tokens)
            check_chat_form(talk.messages("Be kind."), "Be kind.")
            assert talk.messages()[-1]["content"].startswith("a")


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1),
                          st.lists(st.sampled_from([calls("x"), calls("x", "y"), result("x"), result("y"),
                                                    {"role": "user", "content": "u"}])))),
       st.integers(1, 5), st.integers(1, 300))
def test_any_conversation_has_that_form(turns, max_turns, max_tokens):
    talk = Conversation(max_turns, max_tokens)
    for question, answer, messages in turns:
        if question.replace("\x00", "").strip() and answer.replace("\x00", "").strip():
            talk.add(question, answer, messages)
    check_chat_form(talk.messages())
    assert bool(talk.messages()) == bool(len(talk))


# --- with an agent


def test_the_agent_reads_the_conversation_and_adds_to_it():
    model = ScriptedLLM([FINISH.format("Hello Ada!"), FINISH.format("Ada")])
    agent, talk = ReActAgent(model, ToolExecutor()), Conversation()
    agent.run("I am Ada.", verbose=False, conversation=talk)
    agent.run("Who am I?", verbose=False, conversation=talk)
    assert talk.turns() == [("I am Ada.", "Hello Ada!"), ("Who am I?", "Ada")]
    assert "Question: I am Ada.\nAnswer: Hello Ada!\n" in model.calls[1][0]["content"]


def test_failed_runs_leave_nothing_behind():
    talk = Conversation()
    agent = ReActAgent(ScriptedLLM([ModelError("no server"), "just prose", "more prose"]), ToolExecutor(), 2)
    with pytest.raises(ModelError):
        agent.run("q", verbose=False, conversation=talk)
    assert not agent.run("q", verbose=False, conversation=talk)
    assert len(talk) == 0


def test_braces_in_the_conversation_are_text():
    talk = Conversation()
    talk.add("What is {question}?", "A {history} of {0} and {{}} %s")
    model = ScriptedLLM([FINISH.format("ok")])
    ReActAgent(model, ToolExecutor()).run("next", verbose=False, conversation=talk)
    assert "Answer: A {history} of {0} and {{}} %s" in model.calls[0][0]["content"]


def test_many_threads():
    talk = Conversation(max_turns=50)

    def work(name):
        for number in range(40):
            talk.add(f"{name} {number}", "a", [calls("x"), result("x")])
            check_chat_form(talk.messages())
            list(talk)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(talk) == 160
    assert [turn.question for turn in talk if turn.question[0] == "a"] == [f"a {n}" for n in range(40)]


# --- a tokenizer


def test_tiktoken_is_only_used_when_asked_for(tmp_path, monkeypatch):
    package = tmp_path / "tiktoken.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tiktoken", raising=False)
    package.write_text("class Words:\n"
                       "    def encode_ordinary(self, text): return text.split()\n"
                       "def get_encoding(name): return Words()\n")
    talk = Conversation(max_tokens=3, count_tokens="tiktoken")
    Conversation()
    talk.add("one two", "three four")
    assert "[cut: " in talk.turns()[0][1]
    monkeypatch.delitem(sys.modules, "tiktoken")


@pytest.mark.parametrize(("source", "message"), [
    ("raise ImportError", "pip install tiktoken"),
    ("def get_encoding(name): raise OSError('no network')", "word list: no network"),
])
def test_tiktoken_that_cannot_be_used(tmp_path, monkeypatch, source, message):
    (tmp_path / "tiktoken.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tiktoken", raising=False)
    with pytest.raises(HelloReactError, match=message):
        Conversation(count_tokens="tiktoken")
    sys.modules.pop("tiktoken", None)


def test_the_module_imports_no_tokenizer():
    code = "import sys, hello_react.memory; print('tiktoken' in sys.modules, 'openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- files


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "talks"
    folder.mkdir()
    return folder


def test_save_and_load(folder):
    path = folder / "talk.jsonl"
    talk = Conversation()
    talk.add("你好 {x}\n第二行\u2028?", "a \u0085 \x0c b\r\nc", [calls("x"), result("x", "\ud83d 天气")])
    talk.add("q", "a")
    assert talk.save(path) is None
    loaded = Conversation.load(path, max_turns=1)
    assert list(loaded) == list(talk)
    assert loaded.skipped_lines == 0
    assert loaded.turns() == [("q", "a")]
    lines = path.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 4
    assert lines[3] == ""
    assert "你好" in lines[1]
    assert json.loads(lines[2]) == {"question": "q", "answer": "a"}
    assert os.listdir(folder) == ["talk.jsonl"]


def test_an_empty_conversation_and_an_empty_file(folder):
    path = folder / "talk.jsonl"
    Conversation().save(str(path))
    assert len(Conversation.load(str(path))) == 0
    path.write_bytes(b"")
    empty = Conversation.load(path)
    assert (len(empty), empty.skipped_lines, os.listdir(folder)) == (0, 0, ["talk.jsonl"])
    assert filled(2).save(path) is None
    assert len(Conversation.load(path)) == 2


def test_a_cut_last_line(folder):
    path = folder / "talk.jsonl"
    filled(3).save(path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        loaded = Conversation.load(path)
        assert list(loaded) == list(filled(2))
        assert loaded.skipped_lines == 1
    path.write_bytes(whole[:-1])  # only the line's end is lost
    assert list(Conversation.load(path)) == list(filled(3))


@pytest.mark.parametrize("line", [
    b"\xff\xfe", b"{", b"[]", b"7", b"null", b'"text"', b"{}", b'{"question": "q"}', b"[" * 100_000,
    b'{"question": "q", "answer": null}', b'{"question": "q", "answer": ""}',
    b'{"question": 1, "answer": "a"}',
    b'{"question": "q", "answer": "a", "messages": 7}', b'{"question": "q", "answer": "a", "messages": null}',
])
def test_a_bad_line_between_good_ones(folder, line):
    path = folder / "talk.jsonl"
    filled(2).save(path)
    header, first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([header, first, line, b"", second, b""]))
    damaged = path.read_bytes()
    loaded = Conversation.load(path)
    assert list(loaded) == list(filled(2))
    assert loaded.skipped_lines == 1
    loaded.save(path)
    assert (folder / "talk.jsonl.unreadable-1").read_bytes() == damaged
    assert Conversation.load(path).skipped_lines == 0
    assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize("first", [b'{"format": "hello_rea', b"\x00" * 50, b"", b"\xff"])
def test_a_damaged_first_line_does_not_take_the_turns_with_it(folder, first):
    path = folder / "talk.jsonl"
    filled(2).save(path)
    damaged = first + path.read_bytes()[path.read_bytes().index(b"\n"):]
    path.write_bytes(damaged)
    loaded = Conversation.load(path)
    assert (list(loaded), loaded.skipped_lines) == (list(filled(2)), 1)
    kept = loaded.save(path)
    assert kept is not None
    assert kept.read_bytes() == damaged
    assert len(os.listdir(folder)) == 2


def test_the_turns_of_another_format_are_not_taken(folder):
    path = folder / "talk.jsonl"
    path.write_text('{"question": "q", "answer": "a"}\n' * 2)
    with pytest.raises(MemoryFileError, match="is not a saved conversation"):
        Conversation.load(path)


def test_a_file_that_went_through_an_editor(folder):
    path = folder / "talk.jsonl"
    filled(2).save(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(Conversation.load(path)) == list(filled(2))
    filled(3).save(path)
    assert os.listdir(folder) == ["talk.jsonl"]


def test_calls_without_results_in_a_file_are_left_out(folder):
    path = folder / "talk.jsonl"
    filled(1).save(path)
    line = {"question": "q", "answer": "a", "messages": [calls("x", "y"), result("x")], "later": True}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert list(Conversation.load(path))[1] == Exchange("q", "a")


UNREADABLE = [b"\x00\x01\xff" * 1_000, b"Dear diary\n", b'{"format": "hello_react conv', b"[]\n", b"\n",
              b'{"format": "hello_react conversation", "version": "1"}\n',
              b'{"format": "hello_react conversation", "version": 0}\n',
              b'{"format": "hello_react trace", "version": 1}\n', '{"question": "q"}\n'.encode("utf-16")]


@pytest.mark.parametrize("content", UNREADABLE)
def test_an_unreadable_file_is_kept_and_said(folder, content):
    path = folder / "talk.jsonl"
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(MemoryFileError) as caught:
            Conversation.load(path)
        assert str(caught.value) == (f"{path} is not a saved conversation. "
                                     "What it holds is kept as talk.jsonl.unreadable-1 too.")
        assert path.read_bytes() == content
    kept = folder / "talk.jsonl.unreadable-1"
    assert filled(1).save(path) == kept.resolve()
    assert len(Conversation.load(path)) == 1
    assert kept.read_bytes() == content
    assert len(os.listdir(folder)) == 2


def test_saving_over_something_else_keeps_that(folder):
    path = folder / "notes.txt"
    for number in (1, 2):
        path.write_text(f"my notes {number}")
        kept = filled(1).save(path)
        assert kept is not None
        assert kept.name == f"notes.txt.unreadable-{number}"
        assert kept.read_text() == f"my notes {number}"
        assert len(Conversation.load(path)) == 1


def test_a_file_system_without_links(folder, monkeypatch):
    def no_links(old, new):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    path = folder / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(MemoryFileError, match=r"kept as notes\.txt\.unreadable-1"):
        Conversation.load(path)
    filled(1).save(path)
    assert (folder / "notes.txt.unreadable-1").read_text() == "my notes"
    assert len(os.listdir(folder)) == 2


def test_a_file_from_a_newer_version(folder):
    path = folder / "talk.jsonl"
    content = '{"format": "hello_react conversation", "version": 2}\n{"asked": "q"}\n'
    path.write_text(content)
    with pytest.raises(MemoryFileError, match="newer version") as caught:
        Conversation.load(path)
    assert "\n" not in str(caught.value)
    assert os.listdir(folder) == ["talk.jsonl"]
    assert path.read_text() == content
    kept = filled(1).save(path)
    assert kept is not None
    assert kept.read_text() == content


@pytest.mark.parametrize("name", ["missing.jsonl", "nowhere/talk.jsonl", ".", "pipe"])
def test_places_that_hold_no_file(folder, name):
    if name == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("no named pipes here")
        os.mkfifo(folder / name)
    with pytest.raises(MemoryFileError) as caught:
        Conversation.load(folder / name)
    assert str(folder / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    if name != "missing.jsonl":
        with pytest.raises(MemoryFileError, match="can't be written"):
            filled(1).save(folder / name)
        assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(("name", "shown"), [("a\0b", "a\\x00b"), ("a\ud800b", "a\ufffdb")])
def test_names_that_no_file_can_have(folder, name, shown):
    for use in (Conversation.load, filled(1).save):
        with pytest.raises(MemoryFileError) as caught:
            use(folder / name)
        assert str(caught.value) == f"{folder / shown} is no file name: it holds signs that none can."
    assert not os.listdir(folder)


def test_the_topmost_folder_is_no_file(folder):
    for use in (Conversation.load, filled(1).save):
        with pytest.raises(MemoryFileError, match="topmost folder"):
            use(folder.anchor)


@pytest.mark.skipif(os.name == "nt", reason="a folder in use can't be removed there")
def test_a_working_folder_that_is_gone(folder):
    code = ("import os, sys; from hello_react.memory import Conversation, MemoryFileError\n"
            "os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
            "for use in (Conversation.load, Conversation().save):\n"
            "    try: use('talk.jsonl')\n"
            "    except MemoryFileError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "talk.jsonl can't be found: No such file or directory.\n" * 2


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_the_mode_of_a_file_is_kept(folder, mode):
    path = folder / "talk.jsonl"
    filled(1).save(path)
    path.chmod(mode)
    filled(2).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_links_are_followed(folder):
    real, link = folder / "real.jsonl", folder / "link.jsonl"
    link.symlink_to(real)
    filled(1).save(link)
    filled(2).save(link)
    assert link.is_symlink()
    assert not real.is_symlink()
    assert len(Conversation.load(link)) == len(Conversation.load(real)) == 2


def test_a_folder_that_takes_no_files(folder):
    if os.name == "nt" or os.geteuid() == 0:
        pytest.skip("needs a user whom permissions stop")
    path = folder / "talk.jsonl"
    path.write_text("notes")
    folder.chmod(0o500)
    try:
        with pytest.raises(MemoryFileError) as caught:
            Conversation.load(path)
        assert str(caught.value) == f"{path} is not a saved conversation."
        with pytest.raises(MemoryFileError, match="can't be written"):
            filled(1).save(path)
    finally:
        folder.chmod(0o700)


def test_a_full_disk_leaves_the_old_file(folder):
    resource = pytest.importorskip("resource")
    path = folder / "talk.jsonl"
    filled(1).save(path)
    before = path.read_bytes()
    big = Conversation()
    big.add("q", "a" * 100_000)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limit[1]))
    try:
        with pytest.raises(MemoryFileError, match="can't be written: File too large"):
            big.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert os.listdir(folder) == ["talk.jsonl"]


SAVER = """
import itertools, sys
from hello_react.memory import Conversation
talk = Conversation()
for number in itertools.count():
    talk.add(f"q{number}", "a" * 20_000)
    talk.save(sys.argv[1])
    print(number, flush=True)
"""


def test_a_kill_while_saving(folder):
    path = folder / "talk.jsonl"
    for delay in (3, 10):
        command = [sys.executable, "-c", SAVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as saver:
            for _ in range(delay):
                said = int(saver.stdout.readline())
            saver.kill()
        loaded = Conversation.load(path)
        assert loaded.skipped_lines == 0
        assert len(loaded) > said
        assert all(len(turn.answer) == 20_000 for turn in loaded)


def test_what_killed_saves_left_goes_with_a_later_one(folder, monkeypatch):
    talk, other = folder / "talk.jsonl", folder / "other.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: None)  # as if killed before it could tidy up
        patch.setattr(os, "replace", lambda old, new: None)
        for path in (talk, talk, other):
            filled(1).save(path)
    left = sorted(folder.glob(".*.tmp"))
    assert len(left) == 3
    filled(1).save(talk)
    assert len(list(folder.glob(".*.tmp"))) == 3  # they may belong to a save under way
    for file in left:
        os.utime(file, (1, 1))
    filled(1).save(talk)
    assert len(list(folder.glob(".*.tmp"))) == 1
    filled(1).save(other)
    assert sorted(os.listdir(folder)) == ["other.jsonl", "talk.jsonl"]


def test_two_threads_save_to_one_file(folder):
    path = folder / "talk.jsonl"
    talk = Conversation()

    def work():
        for number in range(20):
            talk.add(f"q{number}", "a" * 1_000)
            talk.save(path)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Conversation.load(path)) == 80
    assert os.listdir(folder) == ["talk.jsonl"]
