"""Traces: written as a run goes, read back whatever became of the file, replayed without model or tools."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hello_react import (
    Action,
    Finish,
    HelloAgentsLLM,
    Malformed,
    ModelError,
    Notice,
    Observation,
    ReActAgent,
    Reply,
    RunEnded,
    RunStarted,
    ScriptedLLM,
    StepStarted,
    Thought,
    Token,
    ToolExecutor,
    Usage,
)
from hello_react.errors import (
    BadReplyError,
    ContextLengthError,
    ModelStatusError,
    ModelTimeoutError,
    TraceError,
)
from hello_react.events import ToolCall, drain
from hello_react.tool_calling import ToolCallingAgent
from hello_react.trace import TraceWriter, read, replay

SEARCH = "Thought: I look it up.\nAction: Search[Oslo]"
ADD = 'Thought: I add.\nAction: Add[{"a": 2, "b": 3}]'
DONE = "Thought: I know it.\nAction: Finish[42]"
PROSE = "I would rather talk."
KEY = "live_9f8e7d6c5b4a39281706f5e4d3c2b1a0"


def tools(search=lambda query: f"about {query}"):
    registry = ToolExecutor()
    registry.register_tool("Search", "Looks things up.", search)

    @registry.tool(name="Add")
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    return registry


def agent(*replies, search=lambda query: f"about {query}", kind=ReActAgent, **options):
    return kind(ScriptedLLM(replies), tools(search), **options)


def record(an_agent, path, question="How many?", *others, **options):
    """Run, trace and give back every event; what a run raises is raised no further."""
    events = []
    with TraceWriter(path, secrets=()) as trace:
        try:
            drain(an_agent.stream(question, **options), events.append, trace, *others)
        except (ModelError, KeyboardInterrupt):
            pass
    assert trace.error is None
    return events


def entries(path):
    return [json.loads(line) for line in Path(path).read_bytes().split(b"\n") if line.strip()]


def raises(error):
    def search(query):
        raise error

    return search


def repeated(text):
    return Reply(text, usage=Usage(10, 5), finish_reason="stop")


# --- a run comes back as it was


class Numbered:
    """A conversation as the agent wants it."""

    def turns(self):
        return [("Who?", "Ada")]

    def add(self, question, answer):
        pass


def context_error():
    return ContextLengthError("400: too long", 400)


class Client:
    """A client whose script may raise in mid-reply: a list of events, or of exceptions, for each call."""

    def __init__(self, *calls):
        self.calls = list(calls)

    def think(self, messages):
        raise AssertionError

    def stream(self, messages, **options):
        for item in self.calls.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


def native(*replies, **options):
    return agent(*replies, kind=ToolCallingAgent, **options)


def calls(*pairs, text="", thinking="", ids=True):
    made = tuple(
        ToolCall(f"id{number}" if ids else "", name, arguments)
        for number, (name, arguments) in enumerate(pairs)
    )
    return Reply(text, thinking, tool_calls=made, usage=Usage(7, 3), finish_reason="tool_calls")


SHORTENED = [Notice("The server is busy, trying again", restart=False), context_error()]

RUNS = {
    "finished": lambda: agent(SEARCH, ADD, DONE),
    "usage and thinking": lambda: agent(
        Reply(SEARCH, "Hm, hm.", usage=Usage(9, 4), finish_reason="stop"), repeated(DONE)
    ),
    "no thought": lambda: agent("Action: Search[x]", "Action: Finish[y]"),
    "malformed on the way": lambda: agent(PROSE, "Thought: x\nAction: Nothing[y]", DONE),
    "malformed at the end": lambda: agent(SEARCH, PROSE, PROSE, PROSE),
    "malformed, one is enough": lambda: agent(SEARCH, PROSE, max_malformed=1),
    "malformed, more are allowed": lambda: agent(PROSE, PROSE, PROSE, PROSE, DONE, max_malformed=9),
    "step limit": lambda: agent(SEARCH, ADD, max_steps=2),
    "step limit of malformed": lambda: agent(SEARCH, PROSE, PROSE, max_steps=3),
    "best effort": lambda: agent(SEARCH, DONE, max_steps=1, best_effort=True),
    "best effort in plain words": lambda: agent(SEARCH, "Perhaps 42.", max_steps=1, best_effort=True),
    "best effort in vain": lambda: agent(SEARCH, ADD, max_steps=1, best_effort=True),
    "repeating": lambda: agent(SEARCH, SEARCH, SEARCH, DONE),
    "repeated twice": lambda: agent(SEARCH, SEARCH, ADD, SEARCH.replace("Oslo", "Rome"), DONE),
    "several actions": lambda: agent(f"{SEARCH}\n{ADD}", f"{SEARCH}\nAction: Search[Rome]", DONE),
    "repeated several": lambda: agent(*[f"{SEARCH}\n{ADD}"] * 3),
    "tool errors": lambda: agent(SEARCH, "Action: Add[one]", DONE, search=raises(ValueError("no net"))),
    "refused": lambda: agent(
        SEARCH, ADD, DONE, approve=lambda call: "not now" if call.tool == "Add" else False
    ),
    "objections": lambda: agent(
        DONE, SEARCH, DONE.replace("42", "43"), check_answer=lambda answer: answer == "43"
    ),
    "objection in words": lambda: agent(DONE, DONE, max_steps=2, check_answer=lambda answer: "Give a unit."),
    "long result cut": lambda: agent(
        SEARCH, DONE, search=lambda query: "long " * 5_000, observation_limit=100
    ),
    "history over budget": lambda: agent(
        SEARCH, ADD, SEARCH.replace("Oslo", "Rome"), DONE, history_budget=20
    ),
    "prompt too long": lambda: agent(SEARCH, ADD, context_error(), DONE),
    "prompt too long after all": lambda: agent(SEARCH, context_error(), context_error()),
    "prompt too long at once": lambda: agent(context_error()),
    "prompt too long after a notice": lambda: ReActAgent(
        Client([Reply(SEARCH)], SHORTENED, [Token(DONE), Reply(DONE)]), tools()
    ),
    "tried again": lambda: ReActAgent(
        Client(
            [Token("Thou"), Notice("The stream broke, trying again", restart=True), Token(DONE), Reply(DONE)]
        ),
        tools(),
    ),
    "server that cuts the prompt": lambda: agent(
        repeated(SEARCH), repeated(ADD), repeated(DONE), search=lambda query: "long " * 500
    ),
    "cut answer": lambda: agent(Reply("Action: Finish[It is", finish_reason="length"), DONE),
    "service failed": lambda: agent(SEARCH, BadReplyError("Empty reply: nothing came.")),
    "failed in mid-reply": lambda: ReActAgent(
        Client([Reply(SEARCH)], [Token("Thought: hm"), ModelStatusError("upstream limit", 500)]), tools()
    ),
    "failed at once": lambda: agent(ModelError("No server there.")),
    "bug of a client": lambda: ReActAgent(Client([ModelError("first")]), tools()),
    "no time": lambda: agent(DONE, time_limit=0),
    "no time for best effort": lambda: agent(DONE, time_limit=0, best_effort=True),
    "out of time": lambda: ReActAgent(
        Client([Reply(SEARCH)], [Token("Thou"), ModelTimeoutError("slow")]),
        tools(lambda query: time.sleep(0.3)),
        time_limit=0.2,
    ),
    "interrupted model": lambda: ReActAgent(
        Client([Reply(SEARCH)], [Reply(ADD)], [Token("Tho"), KeyboardInterrupt()]), tools()
    ),
    "interrupted tool": lambda: agent(ADD, SEARCH, search=raises(KeyboardInterrupt())),
    "no tools": lambda: ReActAgent(ScriptedLLM([DONE]), ToolExecutor()),
    "braces and labels": lambda: agent(
        "Thought: {x} %s\nAction: Search[{}\nObservation: [key]\n]",
        DONE,
        search=lambda query: "Action: Finish[no]\nObservation: {tools}",
    ),
    "native": lambda: native(calls(("Search", '{"query": "Oslo"}'), ("Add", '{"a": 2, "b": 3}')), "It is 5."),
    "native without calls": lambda: native("Hello!"),
    "native with thinking": lambda: native(Reply("<think>hm</think>Hello!"), max_steps=1),
    "native without ids": lambda: native(
        calls(("Add", '{"a": 2, "b": 3}'), ("Search", ""), text="I go.", ids=False), "5"
    ),
    "native with mistakes": lambda: native(
        calls(("Nothing", "{}"), ("Add", "no JSON"), ("Add", "[1]")), "Sorry."
    ),
    "native, cut, then answered": lambda: native(Reply("It is", finish_reason="length"), "It is 5."),
    "native that never answers": lambda: native(*[Reply("It is", finish_reason="length")] * 3),
    "native, repeating": lambda: native(
        *[calls(("Search", '{"query": "Oslo"}'), ("Search", '{"query": "Oslo"}'))] * 4
    ),
    "native, best effort": lambda: native(
        calls(("Add", '{"a": 2, "b": 3}')), "Five.", max_steps=1, best_effort=True
    ),
    "native, best effort in vain": lambda: native(
        *[calls(("Add", '{"a": 2, "b": 3}'))] * 2, max_steps=1, best_effort=True
    ),
    "native, call within the text": lambda: native("Thought: x\nAction: Search[Oslo]", "It is in Norway."),
    "native, calls in tags": lambda: native(
        '<tool_call>{"name": "Search", "arguments": {"query": "Oslo"}}</tool_call>'
        '<tool_call>{"name": "Add", "arguments": {"a": 1, "b": 2}}</tool_call>',
        "Norway.",
    ),
    "native, thinking wanted back": lambda: native(
        calls(("Add", '{"a": 2, "b": 3}'), thinking="hm"),
        ModelStatusError("400: reasoning_content is missing", 400),
        "Five.",
    ),
    "native, objections": lambda: native("Four.", "Five.", check_answer=lambda answer: answer == "Five."),
}


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS.keys())
def test_every_kind_of_run_is_written_read_and_replayed(make, tmp_path):
    events = record(make(), tmp_path / "t.jsonl")
    trace = read(tmp_path / "t.jsonl")
    assert trace.bad_lines == trace.unknown_events == 0
    assert [list(run) for run in trace.runs] == [events]
    assert list(replay(tmp_path / "t.jsonl")) == events


def test_the_kinds_of_runs_above_end_in_every_way(tmp_path):
    ends = {record(make(), tmp_path / f"{name}.jsonl")[-1].result.status for name, make in RUNS.items()}
    assert ends == {
        "finished",
        "best_effort",
        "max_steps",
        "malformed",
        "repeating",
        "timed_out",
        "interrupted",
        "failed",
    }


def test_a_conversation_is_in_the_prompt_that_comes_back(tmp_path):
    events = record(agent(DONE), tmp_path / "t.jsonl", "And when?", conversation=Numbered())
    assert "Ada" in events[1].messages[0]["content"]
    assert list(replay(tmp_path / "t.jsonl")) == events


def test_a_replay_shows_times_as_they_were(tmp_path):
    events = record(agent(SEARCH, DONE, search=lambda query: time.sleep(0.05)), tmp_path / "t.jsonl")
    again = list(replay(tmp_path / "t.jsonl"))
    assert again[-1].result.steps[0].seconds == events[-1].result.steps[0].seconds >= 0.05
    assert again[-1].result.seconds == events[-1].result.seconds


def test_a_replay_asks_no_model_and_runs_no_tool(tmp_path):
    seen = []
    record(agent(SEARCH, DONE, search=seen.append), tmp_path / "t.jsonl")
    assert len(seen) == 1
    assert drain(replay(tmp_path / "t.jsonl")).answer == "42"
    assert len(seen) == 1


def test_a_reply_that_was_changed_parts_from_the_recording(tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(SEARCH, ADD, DONE), path)
    changed = [
        line | {"text": ADD.replace("3", "4")} if line["event"] == "Reply" and line["step"] == 2 else line
        for line in entries(path)[1:]
    ]
    header = path.read_text("utf-8").split("\n")[0]
    path.write_text("\n".join([header, *map(json.dumps, changed)]), "utf-8")
    shown = []
    with pytest.raises(
        TraceError, match=r"part at step 2: recorded is Action\(.*\"b\": 3.*now comes Action\(.*\"b\": 4"
    ):
        for event in replay(path):
            shown.append(event)
    assert shown[-1] == Thought("I add.")


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
EVENTS = st.one_of(
    st.builds(RunStarted, TEXT, st.lists(TEXT).map(tuple), st.integers()),
    st.builds(
        StepStarted,
        st.integers(1, 9),
        st.lists(
            st.fixed_dictionaries(
                {
                    "role": st.sampled_from(["system", "user"]),
                    "content": st.one_of(TEXT, st.none(), st.just([{"type": "text"}])),
                },
                optional={"tool_calls": st.lists(st.fixed_dictionaries({"id": TEXT}))},
            )
        ).map(tuple),
    ),
    st.builds(Token, TEXT, st.booleans()),
    st.builds(Notice, TEXT, st.booleans()),
    st.builds(
        Reply,
        TEXT,
        TEXT,
        st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT)).map(tuple),
        st.builds(Usage, st.none() | st.integers(0), st.none() | st.integers(0)),
        TEXT,
    ),
    st.builds(Thought, TEXT),
    st.builds(Action, TEXT, TEXT, TEXT),
    st.builds(Finish, TEXT),
    st.builds(Malformed, TEXT, TEXT),
    st.builds(Observation, TEXT, st.booleans(), TEXT, TEXT, st.floats(0, 1e6)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=12).filter(lambda events: "\\x00" not in repr(events)))
def test_whatever_the_events_say_they_come_back(tmp_path, events):
    path = tmp_path / "t.jsonl"
    path.unlink(missing_ok=True)
    with TraceWriter(path, secrets=()) as trace:
        for event in events:
            trace(event)
    back = [event for run in read(path).runs for event in run]
    assert back == events


MOVES = st.one_of(
    st.sampled_from(
        [
            SEARCH,
            ADD,
            DONE,
            PROSE,
            f"{SEARCH}\n{ADD}",
            "",
            "Action: Nothing[x]",
            "Action: Search[",
            "Action: Add[x]",
        ]
    ),
    st.text(st.characters(), max_size=40),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(MOVES, min_size=1, max_size=7),
    st.integers(1, 6),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([ReActAgent, ToolCallingAgent]),
    st.sampled_from([5, 16_000]),
)
def test_any_run_is_replayed(tmp_path, replies, max_steps, max_malformed, best_effort, kind, budget):
    path = tmp_path / "t.jsonl"
    path.unlink(missing_ok=True)
    record(
        agent(
            *replies,
            kind=kind,
            max_steps=max_steps,
            max_malformed=max_malformed,
            best_effort=best_effort,
            history_budget=budget,
        ),
        path,
    )
    assert list(replay(path)) == list(read(path).runs[0])


# --- the file


def test_each_event_is_in_the_file_when_the_next_one_comes(tmp_path):
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, secrets=[KEY]) as trace:
        assert len(entries(path)) == 1
        for number, event in enumerate(agent(SEARCH, DONE).stream("q"), 1):
            trace(event)
            lines = entries(path)
            assert len(lines) == 1 + number
            assert lines[-1]["event"] == type(event).__name__


def test_what_a_line_holds(tmp_path):
    record(agent(SEARCH, DONE, search=lambda query: "h\u00f6he 华为"), tmp_path / "t.jsonl")
    raw = (tmp_path / "t.jsonl").read_bytes()
    assert "höhe 华为".encode() in raw
    assert raw.endswith(b"}\n")
    header, started, step, *_ = lines = entries(tmp_path / "t.jsonl")
    assert (header["format"], header["version"]) == ("hello_react trace", 1)
    assert started["event"] == "RunStarted"
    assert started["question"] == "How many?"
    assert "step" not in started
    assert (step["event"], step["step"], step["number"]) == ("StepStarted", 1, 1)
    action = next(line for line in lines if line["event"] == "Action") if (lines := lines[1:]) else None
    assert list(action) == ["event", "step", "time", "tool", "input"]
    assert "value" not in next(line for line in lines if line["event"] == "Observation")
    assert "step" not in lines[-1]


def test_a_trace_grows_as_the_run_does_not_as_its_prompts(tmp_path):
    steps = [f"Thought: {'so ' * 100}\nAction: Search[{number}]" for number in range(40)]
    events = record(agent(*steps, DONE, max_steps=50, history_budget=100_000), tmp_path / "t.jsonl")
    prompts = sum(len(event.messages[0]["content"]) for event in events if isinstance(event, StepStarted))
    written = sum(
        len(line["messages"][0]["content"])
        for line in entries(tmp_path / "t.jsonl")[1:]
        if line["event"] == "StepStarted"
    )
    assert written < prompts / 10
    assert list(read(tmp_path / "t.jsonl").runs[0]) == events


def test_runs_of_one_file_stand_one_after_the_other(tmp_path):
    path = tmp_path / "t.jsonl"
    first = record(agent(SEARCH, DONE), path, "first")
    with TraceWriter(path, secrets=()) as trace:  # a chat: two runs with one writer
        agent("Action: Finish[a]").run("second", on_event=trace)
        agent("Action: Finish[b]").run("third", on_event=trace)
    assert [run[0].question for run in read(path).runs] == ["first", "second", "third"]
    assert list(replay(path, 0)) == first
    assert drain(replay(path)).answer == "b"
    assert drain(replay(path, -2)).answer == "a"
    assert sum("format" in line for line in entries(path)) == 1
    with pytest.raises(TraceError, match=r"holds 3 runs; there is no run 3\.$"):
        replay(path, 3)


def test_a_file_that_was_cut_is_added_to_at_a_new_line(tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(DONE), path, "first")
    path.write_bytes(path.read_bytes()[:-9])
    second = record(agent(DONE), path, "second")
    trace = read(path)
    assert trace.bad_lines == 1
    assert [run[0].question for run in trace.runs] == ["first", "second"]
    assert list(replay(path)) == second


def test_a_folder_gets_a_new_file_for_each_writer(tmp_path):  # V11
    writers = [TraceWriter(tmp_path, secrets=()) for _ in range(5)]
    for number, writer in enumerate(writers):
        agent("Action: Finish[a]").run(str(number), on_event=writer)
        writer.close()
    assert len({writer.path for writer in writers}) == len(list(tmp_path.glob("run-*.jsonl"))) == 5
    assert [read(writer.path).runs[0][0].question for writer in writers] == list("01234")


def test_two_programs_that_begin_at_once_get_two_files(tmp_path):  # V11
    code = "import sys, hello_react.trace as t; [t.TraceWriter(sys.argv[1]).close() for _ in range(20)]"
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert len(list(tmp_path.glob("run-*.jsonl"))) == 40


def test_a_name_that_ends_in_a_slash_is_a_folder_also_where_there_is_none_yet(tmp_path):
    with TraceWriter(f"{tmp_path}/new/") as first, TraceWriter(f"{tmp_path}/new/") as second:
        assert {first.path.parent, second.path.parent} == {tmp_path / "new"}


def test_without_a_name_the_file_is_in_the_working_folder(nothing_of_this_machine):
    with TraceWriter() as trace:
        agent(DONE).run("q", on_event=trace)
    assert list(nothing_of_this_machine.glob("run-*.jsonl")) == [trace.path.absolute()]
    assert list(replay(trace.path))[-1].result.answer == "42"


def test_two_writers_that_begin_a_file_at_once_give_a_readable_file(tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(DONE), path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], *lines]))
    assert read(path).bad_lines == 0
    assert drain(replay(path)).answer == "42"


def test_two_threads_write_two_traces(tmp_path):
    shared = ReActAgent(ScriptedLLM([f"Action: Finish[{number}]" for number in range(60)]), tools())
    results = {}

    def work(name):
        with TraceWriter(tmp_path / name, secrets=()) as trace:
            results[name] = [shared.run(f"{name} {number}", on_event=trace) for number in range(30)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for name in "ab":
        assert [run[-1].result for run in read(tmp_path / name).runs] == results[name]
        assert drain(replay(tmp_path / name, 7)) == results[name][7]


# --- what can't be written


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no/such/folder/t.jsonl", "No such file or directory"),
        ("t\0.jsonl", "null"),
        ("t\ud800/t.jsonl", "surrogates not allowed"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="words of the system")
def test_a_path_that_cannot_be_used_is_one_line(path, words):
    for use in (TraceWriter, read, replay):
        with pytest.raises(TraceError, match=words) as caught:
            use(path)
        assert re.search("[\n\0\ud800]", str(caught.value)) is None


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a file without an end")
def test_only_regular_files_are_read():
    for reading in (read, replay):
        with pytest.raises(TraceError, match=r"^The trace /dev/zero can't be read: it is no regular file\.$"):
            reading("/dev/zero")


@pytest.mark.parametrize(
    "content",
    [b"notes of mine\n", b"{}\n", b"\0\xff" * 900, b"[" * 900, b'{"format": "other", "version": 1}\n'],
)
def test_another_file_is_left_as_it_is(content, tmp_path):
    (tmp_path / "notes").write_bytes(content)
    with pytest.raises(TraceError, match=r"notes is not a trace of hello_react\.$"):
        TraceWriter(tmp_path / "notes", secrets=())
    assert (tmp_path / "notes").read_bytes() == content
    with pytest.raises(TraceError, match=r"notes is not a trace of hello_react\.$"):
        read(tmp_path / "notes")


def test_an_empty_file_is_filled(tmp_path):
    (tmp_path / "t.jsonl").touch()
    record(agent(DONE), tmp_path / "t.jsonl")
    assert len(read(tmp_path / "t.jsonl").runs) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_of_at_once():
    with pytest.raises(
        TraceError, match=r"^The trace can't be written to /dev/full: No space left on device\.$"
    ):
        TraceWriter("/dev/full", secrets=())


def script(tmp_path, body):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(body), "utf-8")
    return [sys.executable, str(path)]


@pytest.mark.skipif(os.name == "nt", reason="limits of a process")
def test_a_disk_that_fills_up_does_not_end_the_run(tmp_path):  # V12
    run = subprocess.run(
        script(
            tmp_path,
            """
        import resource
        from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
        from hello_react.trace import TraceWriter
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        replies = ["Thought: no. " + 300 * "so "] * 2 + ["Action: Finish[42]"]
        agent = ReActAgent(ScriptedLLM(replies), ToolExecutor())
        with TraceWriter("t.jsonl") as trace:
            print(agent.run("q", on_event=trace))
            print(trace.error)
    """,
        ),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")},  # it writes too
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "42\nThe trace t.jsonl ends early: File too large.\n"
    assert run.stderr == "The trace t.jsonl ends early: File too large.\n"
    assert read(tmp_path / "t.jsonl").bad_lines == 1
    assert "breaks off in step 1 (1 lines" in list(replay(tmp_path / "t.jsonl"))[-1].result.reason


def test_a_closed_writer_does_not_end_the_run(tmp_path, caplog):
    trace = TraceWriter(tmp_path / "t.jsonl", secrets=())
    trace.close()
    trace.close()
    with caplog.at_level(logging.WARNING):
        assert agent(DONE).run("q", on_event=trace).answer == "42"
    assert len(caplog.records) == 1
    assert "ends early" in str(trace.error)


def test_a_display_that_crashes_leaves_a_trace_to_replay(tmp_path):  # V12
    def display(event):
        if isinstance(event, Observation):
            raise OSError("the terminal is gone")

    with TraceWriter(tmp_path / "t.jsonl", secrets=()) as trace, pytest.raises(OSError, match="terminal"):
        drain(agent(SEARCH, DONE).stream("q"), trace, display)
    *events, end = replay(tmp_path / "t.jsonl")
    assert isinstance(events[-1], Observation)
    assert (end.result.status, end.result.reason) == ("interrupted", "the recording breaks off in step 1")
    assert [step.observations[0].text for step in end.result.steps] == ["about Oslo"]


# --- files that are damaged, or of another kind


def test_a_last_line_that_was_cut_is_counted(tmp_path):  # V06
    path = tmp_path / "t.jsonl"
    events = record(agent(SEARCH, DONE), path)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start + 1, len(whole) - 1, 7):
        path.write_bytes(whole[:end])
        trace = read(path)
        assert trace.bad_lines == 1
        assert list(trace.runs[0]) == events[:-1]


def test_a_recording_can_be_cut_anywhere(tmp_path):
    path = tmp_path / "t.jsonl"
    events = record(agent(SEARCH, f"{ADD}\n{SEARCH}", PROSE, DONE), path)
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        path.write_bytes(b"".join([header, *lines[:kept]]))
        *again, end = replay(path)
        assert again == events[:kept]
        assert end.result.status == "interrupted"
        whole = sum(isinstance(event, (StepStarted, RunEnded)) for event in events[1 : kept + 1]) - 1
        assert [step.number for step in end.result.steps] == list(range(1, whole + 1))


def test_a_bad_line_in_the_middle_is_left_out(tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(SEARCH, DONE), path)
    lines = path.read_bytes().splitlines(keepends=True)
    for number in range(1, len(lines)):
        path.write_bytes(b"".join([*lines[:number], b'{"event": "Tok\n', *lines[number + 1 :]]))
        kind = json.loads(lines[number])["event"]
        first_prompt = kind == "StepStarted" and number == 2  # the second one adds to it
        assert read(path).bad_lines == (2 if first_prompt else 1)
        if kind in ("StepStarted", "Token", "RunEnded"):
            assert drain(replay(path)).status == ("interrupted" if kind == "RunEnded" else "finished")
        else:
            with pytest.raises(TraceError, match=r"\(1 lines of the file can't be read\)"):
                drain(replay(path))


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "1",
        "null",
        '"event"',
        "{}",
        '{"event": []}',
        '{"event": "Token"}',
        '{"event": "Token", "text": 1}',
        '{"event": "RunEnded", "result": 1}',
        '{"event": "RunEnded", "result": {"answer": 3}}',
        '{"event": "StepStarted", "number": 1}',
        '{"event": "StepStarted", "number": 2, "kept": [1, 0], "messages": []}',
        '{"event": "StepStarted", "number": 2, "kept": [0, 9], "messages": [{"content": "x"}]}',
        '{"event": "StepStarted", "number": 2, "kept": "x", "messages": []}',
        '{"event": "Reply", "tool_calls": {"id": "1"}}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_lines_that_make_no_sense_are_counted(line, tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(DONE), path)
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    trace = read(path)
    assert trace.bad_lines == 1
    assert drain(replay(path)).answer == "42"


def test_events_of_an_unknown_kind_stay_as_they_are(tmp_path):  # V09
    path = tmp_path / "t.jsonl"
    events = record(agent(DONE), path)
    lines = path.read_bytes().splitlines(keepends=True)
    unknown = {"event": "Plan", "step": 1, "ideas": ["x"]}
    path.write_bytes(
        b"".join([*lines[:3], json.dumps(unknown).encode(), b"\n", *lines[3:], json.dumps(unknown).encode()])
    )
    trace = read(path)
    assert (trace.unknown_events, trace.bad_lines, len(trace.runs)) == (2, 0, 1)
    assert trace.runs[0][2] == trace.runs[0][-1] == unknown
    assert list(replay(path)) == events


def test_fields_that_a_later_version_adds_are_passed_over(tmp_path):
    path = tmp_path / "t.jsonl"
    events = record(agent(DONE), path)
    header, *lines = entries(path)
    path.write_text(
        "\n".join(json.dumps(line) for line in [header, *({**line, "more": 1} for line in lines)]), "utf-8"
    )
    assert list(read(path).runs[0]) == events


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "t.jsonl is empty: no run was recorded in it."),
        (b" \n\n", "t.jsonl is empty: no run was recorded in it."),
        (b"Thought: x\n", "t.jsonl is not a trace of hello_react."),
        (b"\x89PNG\r\n\x1a\n\0\0", "t.jsonl is not a trace of hello_react."),
        (b'{"format": "hello_react tr', "t.jsonl is not a trace of hello_react."),
        (
            b'{"format": "hello_react trace", "version": 2}\n',
            "t.jsonl is of trace format 2; this version of hello_react knows 1.",
        ),
    ],
)
def test_files_that_are_no_trace(content, words):  # V09
    Path("t.jsonl").write_bytes(content)
    for reading in (read, replay):
        with pytest.raises(TraceError) as caught:
            reading("t.jsonl")
        assert str(caught.value) == words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.jsonl", "The trace missing.jsonl can't be read: No such file or directory."),
        ("folder", "The trace folder can't be read: Is a directory."),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="words of the system")
def test_files_that_cannot_be_read(path, words):
    Path("folder").mkdir()
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value) == words


def test_a_trace_without_a_run_or_its_beginning_has_no_replay(tmp_path):
    TraceWriter(tmp_path / "t.jsonl", secrets=()).close()
    assert read(tmp_path / "t.jsonl").runs == ()
    with pytest.raises(TraceError, match="holds 0 runs; there is no run -1"):
        replay(tmp_path / "t.jsonl")
    record(agent(DONE), tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "t.jsonl").write_bytes(b"".join([lines[0], b"{\n", *lines[2:]]))
    with pytest.raises(
        TraceError, match=r"lacks the beginning of this run \(1 lines of the file can't be read\)\.$"
    ):
        replay(tmp_path / "t.jsonl")


@pytest.mark.parametrize("changed", [{"max_steps": 0}, {"tools": ["a[b]"]}, {"tools": ["Search", "search"]}])
def test_a_beginning_that_no_agent_can_have(changed, tmp_path):
    path = tmp_path / "t.jsonl"
    record(agent(DONE), path)
    header, started, *lines = entries(path)
    path.write_text("\n".join(map(json.dumps, [header, {**started, **changed}, *lines])), "utf-8")
    with pytest.raises(TraceError, match="can't be replayed: "):
        replay(path)


# --- keys


def files_text(path):
    return Path(path).read_text("utf-8")


def test_no_key_is_written_wherever_it_stands(tmp_path):  # V04
    path = tmp_path / "t.jsonl"
    reply = Reply(f"Thought: the key is {KEY}.\nAction: Search[{KEY}]", thinking=f"Use {KEY}!")
    an_agent = agent(
        reply,
        BadReplyError(f"401: {KEY} is wrong"),
        search=lambda query: {"url": f"http://x/?q=1&api_key={KEY}"},
    )
    with TraceWriter(path, secrets=[KEY]) as trace, pytest.raises(ModelError):
        an_agent.run(f"Is {KEY} good?", on_event=trace)
    assert KEY not in files_text(path)
    assert KEY[3:9] not in files_text(path)
    assert files_text(path).count("[key]") > 8
    events = list(replay(path))
    assert Action("Search", "[key]") in events
    assert events[-1].result.reason == "no answer: 401: [key] is wrong"


def test_no_key_is_written_by_a_native_call(tmp_path):  # V04
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, secrets=[KEY]) as trace:
        native(calls(("Search", json.dumps({"query": f"{KEY} x"})), ("Search", "{}")), f"It is {KEY}.").run(
            "q", on_event=trace
        )
    assert KEY[3:9] not in files_text(path)
    assert drain(replay(path)).answer == "It is [key]."


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 40])
@pytest.mark.parametrize(
    "text",
    [
        f"Thought: it is {KEY}, I think. l li liv\nAction: Finish[{KEY}]",
        "Thought: See http://x/?q=1&api_key=0123456789abcdef&y=2\nAction: Finish[password: hunter2hunter2]",
        "Authorization: Bearer 0123456789abcdef",
        "token=0123456789abcdef",
    ],
)
def test_no_key_comes_through_in_pieces(text, size, tmp_path):  # V04
    path = tmp_path / "t.jsonl"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    with TraceWriter(path, secrets=[KEY]) as trace:
        for thinking in (True, False):
            for piece in pieces:
                trace(Token(piece, thinking))
        trace(Reply(text, text))
    for thinking in (True, False):
        told = "".join(
            event.text
            for event in read(path).runs[0]
            if isinstance(event, Token) and event.thinking == thinking
        )
        assert told == read(path).runs[0][-1].text
    for start in range(len(KEY) - 6):
        assert KEY[start : start + 6] not in files_text(path)
    assert "56789a" not in files_text(path)
    assert "hunter" not in files_text(path)


def test_a_key_without_end_takes_no_time_without_end(tmp_path):
    path = tmp_path / "t.jsonl"
    began = time.perf_counter()
    with TraceWriter(path, secrets=()) as trace:
        for piece in ["token="] + ["9f8e/d6c" * 3] * 20_000:
            trace(Token(piece))
    assert time.perf_counter() - began < 30
    assert "9f8e" not in files_text(path)


def test_text_that_only_begins_like_a_key_keeps_its_tokens(tmp_path):
    path = tmp_path / "t.jsonl"
    tokens = [Token(piece) for piece in ("l", "iv", "e", "ly", ": a ", "key", ": ", "x", " y")]
    with TraceWriter(path, secrets=[KEY]) as trace:
        for token in tokens:
            trace(token)
    assert list(read(path).runs[0]) == tokens


def test_the_keys_of_the_settings_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "abcdefgh-12345678")
    with TraceWriter(tmp_path / "a.jsonl") as trace:
        agent("Action: Finish[abcdefgh-12345678]").run("q", on_event=trace)
    monkeypatch.setenv("LLM_TIMEOUT", "soon")  # settings that can't be loaded
    with TraceWriter(tmp_path / "b.jsonl") as trace:
        agent("Action: Finish[abcdefgh-12345678]").run("q", on_event=trace)
    for name in ("a.jsonl", "b.jsonl"):
        assert "abcdefgh" not in files_text(tmp_path / name)
        assert drain(replay(tmp_path / name)).answer == "[key]"


def test_a_run_whose_key_took_a_bracket_along_is_replayed(tmp_path):
    path = tmp_path / "t.jsonl"
    replies = [
        "Thought: look\nAction: Search[http://x/?token=0123456789]\nAction: Search[more]",
        "Thought: the password:\nAction: Finish[42]",
    ]
    with TraceWriter(path, secrets=()) as trace:
        result = agent(*replies).run("q", on_event=trace)
    again = drain(replay(path))
    assert "0123456789" not in files_text(path)
    assert (again.answer, len(again.steps), again.status) == (result.answer, 2, "finished")


def test_lone_surrogates_and_nul_are_made_safe(tmp_path):  # L54
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, secrets=()) as trace:
        agent(
            "Thought: \ud800 \0\nAction: Search[\udfff]",
            "Action: Finish[\ud83d\0!]",
            search=lambda query: f"{query}\0",
        ).run("q \ud800", on_event=trace)
    assert "\0" not in files_text(path)
    assert "\\u0000" not in files_text(path)
    events = list(replay(path))
    assert Action("Search", "\ufffd") in events
    assert events[-1].result.answer == "\ufffd\ufffd!"


def test_messages_may_hold_anything(tmp_path):
    path = tmp_path / "t.jsonl"
    odd = {
        "role": "user",
        "content": [{"type": "image", "data": b"\0"}],
        3: {
            1,
        },
        "n": 1.5,
    }
    with TraceWriter(path, secrets=()) as trace:
        trace(StepStarted(1, (odd,)))
        trace(StepStarted(2, (odd, {"role": "user", "content": "x"})))
        trace(StepStarted(3, ({**odd, "content": [{"type": "text"}]},)))
    assert [event.number for event in read(path).runs[0]] == [1, 2, 3]
    assert read(path).runs[0][1].messages[0] == {
        "role": "user",
        "content": [{"type": "image", "data": "b'\\x00'"}],
        "3": "{1}",
        "n": 1.5,
    }


# --- Ctrl-C, and worse


def test_ctrl_c_in_step_3_keeps_the_steps_before(tmp_path):  # A21
    path = tmp_path / "t.jsonl"
    events = record(ReActAgent(Client([Reply(SEARCH)], [Reply(ADD)], [KeyboardInterrupt()]), tools()), path)
    result = read(path).runs[0][-1].result
    assert (result.status, result.reason, [step.number for step in result.steps]) == (
        "interrupted",
        "interrupted",
        [1, 2],
    )
    assert list(replay(path)) == events


@pytest.mark.parametrize("trace_first", [True, False])
@pytest.mark.parametrize("kind", [StepStarted, Token, Reply, Thought, Action, Observation, Finish])
def test_ctrl_c_while_the_run_is_shown(kind, trace_first, tmp_path):
    path = tmp_path / "t.jsonl"
    shown = []

    def display(event):
        shown.append(event)
        if sum(isinstance(one, kind) for one in shown) == 1 and isinstance(event, kind):
            raise KeyboardInterrupt

    with TraceWriter(path, secrets=()) as trace, pytest.raises(KeyboardInterrupt):
        drain(agent(SEARCH, DONE).stream("q"), *((trace, display) if trace_first else (display, trace)))
    recorded = list(read(path).runs[0])
    assert recorded[-1].result.status == "interrupted"
    assert list(replay(path)) == recorded


SLOW = r"""
    import sys, time
    from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    from hello_react.events import drain
    from hello_react.trace import TraceWriter

    def search(query):
        if query == "slow":
            print("slow now", flush=True)
            time.sleep(60)
        return "about " + query

    tools = ToolExecutor()
    tools.register_tool("Search", "Looks things up.", search)
    steps = ["Thought: x\nAction: Search[%s]" % query for query in ("one", "two", "slow", "four")]
    with TraceWriter("t.jsonl") as trace:
        ReActAgent(ScriptedLLM(steps), tools).run("q", on_event=trace)
"""


def stopped_in_step_3(tmp_path, signal_number):
    run = subprocess.Popen(
        script(tmp_path, SLOW), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert run.stdout.readline() == "slow now\n"
    run.send_signal(signal_number)
    _, err = run.communicate(timeout=60)
    return run.returncode, err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_real_ctrl_c_in_step_3(tmp_path):  # A21
    code, err = stopped_in_step_3(tmp_path, signal.SIGINT)
    assert code != 0
    assert "KeyboardInterrupt" in err
    trace = read(tmp_path / "t.jsonl")
    assert trace.bad_lines == 0
    result = trace.runs[0][-1].result
    assert (result.reason, [step.observations[0].text for step in result.steps]) == (
        "interrupted",
        ["about one", "about two"],
    )
    assert list(replay(tmp_path / "t.jsonl")) == list(trace.runs[0])


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_program_that_is_killed_leaves_all_lines(tmp_path):
    code, _ = stopped_in_step_3(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL
    trace = read(tmp_path / "t.jsonl")
    assert trace.bad_lines == 0
    assert trace.runs[0][-1] == Action("Search", "slow")
    *events, end = replay(tmp_path / "t.jsonl")
    assert events == list(trace.runs[0])
    assert end.result.reason == "the recording breaks off in step 3"
    assert [step.number for step in end.result.steps] == [1, 2]


def test_ctrl_c_during_a_replay_is_raised(tmp_path):
    record(agent(SEARCH, DONE), tmp_path / "t.jsonl")

    def display(event):
        if isinstance(event, Action):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain(replay(tmp_path / "t.jsonl"), display)


@pytest.mark.parametrize("when", ["before the writer", "after the writer"])
def test_a_key_that_a_client_was_given_is_not_written(when, tmp_path):  # V04
    key, path = f"{when.split()[0]}-Zq7-very-private-0123", tmp_path / "t.jsonl"

    def give():
        return HelloAgentsLLM("m", key, "http://127.0.0.1:1/v1")

    given = give() if when == "before the writer" else None
    with TraceWriter(path) as trace, pytest.raises(ModelError):
        given = given or give()
        agent(f"Thought: I saw {key}.\nAction: Search[x]", ModelError(f"502, X-Auth {key}")).run("q", on_event=trace)
    assert key[:16] not in files_text(path)
    assert "[key]" in files_text(path)


@pytest.mark.parametrize("reply", ["Action: Finish[\0]", "Action: Finish[\ud800]", "Action: Finish[\u2003]"])
def test_an_answer_that_no_reader_sees_is_replayed_as_it_was(reply, tmp_path):  # V12
    path = tmp_path / "t.jsonl"
    events = record(agent(reply, DONE), path)
    assert [type(event) for event in replay(path)] == [type(event) for event in events]
