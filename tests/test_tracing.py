"""Log records and spans of real runs; the spans arrive at a real OTLP/HTTP endpoint on loopback."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from hello_react import HelloAgentsLLM, ReActAgent, ScriptedLLM, ToolExecutor
from hello_react.errors import (
    ContextLengthError,
    HelloReactError,
    MissingExtraError,
    ModelConnectionError,
    ModelTimeoutError,
)
from hello_react.events import Notice, Observation, Reply, RunStarted, ToolCall, Usage
from hello_react.logs import LogListener, configure
from hello_react.parser import Action
from hello_react.tool_calling import ToolCallingAgent
from hello_react.tracing import OtelListener, otlp_provider

from .servers import ModelServer

KEY = "zq-0123456789-secret"
TEXTS = QUESTION, INPUT, RESULT, ANSWER, THOUGHT = (
    "question-text", "input-text", "result-text", "answer-text", "thought-text")


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    loggers = [logging.getLogger(name) for name in ("", "hello_react", "opentelemetry.exporter.otlp")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def tools():
    executor = ToolExecutor()
    executor.register_tool("Search", "Searches.", lambda query: RESULT)

    @executor.tool
    def Fail(text: str) -> str:
        """Fails."""
        raise RuntimeError(f"no luck with {text}")

    @executor.tool
    def Sleep(seconds: float) -> str:
        """Sleeps."""
        time.sleep(seconds)
        return "slept"

    return executor


def reply(text, prompt_tokens=100, completion_tokens=10, finish_reason="stop", **more):
    return Reply(text, usage=Usage(prompt_tokens, completion_tokens), finish_reason=finish_reason, **more)


def script():
    return [reply(f"Thought: {THOUGHT}\nAction: Search[{INPUT}]"),
            reply(f"Thought: {THOUGHT}\nAction: Finish[{ANSWER}]", 200, 20)]


def ask(agent, listener):
    return agent.run(QUESTION, on_event=listener)


def holds(given, **expected):
    return given | expected == given


def calls(*named, **more):
    """A reply with native tool calls: (name, arguments), ..."""
    made = [ToolCall(f"call-{number}", *call) for number, call in enumerate(named, 1)]
    return reply("", tool_calls=tuple(made), finish_reason="tool_calls", **more)


# --- log records


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.all = []

    def emit(self, record):
        self.all.append(record)

    def fields(self):
        """What the records' own fields say, without the prefix."""
        return [{name[6:]: value for name, value in vars(record).items() if name.startswith("react_")}
                for record in self.all]

    def told(self):
        return [(record.levelname, record.react_event) for record in self.all]

    def everything(self):
        return "\n".join(str(vars(record)) for record in self.all)


@pytest.fixture
def records():
    handler = Records()
    logger = logging.getLogger("hello_react.run")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_run_is_told_in_records_without_its_texts(records):
    ask(ReActAgent(ScriptedLLM(script()), tools()), LogListener(secrets=()))
    assert records.told() == [
        ("INFO", "run started"), ("DEBUG", "model called"), ("INFO", "model replied"),
        ("DEBUG", "action"), ("INFO", "tool done"),
        ("DEBUG", "model called"), ("INFO", "model replied"), ("INFO", "run ended")]
    started, _, replied, _, done, *_, ended = fields = records.fields()
    assert holds(started, tools=3, max_steps=5, characters=len(QUESTION), step=0)
    assert holds(replied, prompt_tokens=100, completion_tokens=10, finish_reason="stop", step=1)
    assert holds(done, tool="Search", characters=len(RESULT), step=1)
    assert holds(ended, status="finished", steps=2, prompt_tokens=300, completion_tokens=30)
    assert len({each["run"] for each in fields}) == 1
    assert records.all[0].getMessage().startswith("run started: tools 3, max steps 5")
    assert not [text for text in TEXTS if text in records.everything()]


def test_texts_are_written_at_debug_when_asked_for(records):
    ask(ReActAgent(ScriptedLLM(script()), tools()), LogListener(record_text=True, secrets=()))
    for record in records.all:
        assert record.levelno == logging.DEBUG or not [text for text in TEXTS if text in str(vars(record))]
    texts = {each["event"]: each["text"] for each in records.fields() if "text" in each}
    assert texts["run started"] == QUESTION
    assert texts["action"] == INPUT
    assert texts["tool done"] == RESULT
    assert texts["run ended"] == ANSWER
    assert ANSWER in texts["model replied"]


def test_what_goes_wrong_is_a_warning_and_a_failed_run_an_error(records):
    model = ScriptedLLM(["no action at all", f"Action: Fail[{INPUT}]", f"Action: Finish[{ANSWER}]",
                         ModelConnectionError("nobody there")])
    agent = ReActAgent(model, tools(), check_answer=lambda answer: f"not {answer}")
    listener = LogListener(secrets=())
    with pytest.raises(ModelConnectionError):
        ask(agent, listener)
    listener(Notice("500 from the server, trying again"))
    assert [told for told in records.told() if told[0] in ("WARNING", "ERROR")] == [
        ("WARNING", "reply unreadable"), ("WARNING", "tool failed"), ("WARNING", "answer refused"),
        ("ERROR", "run ended"), ("WARNING", "notice")]
    assert "nobody there" in records.everything()
    assert records.fields()[-1]["message"] == "500 from the server, trying again"
    assert not [text for text in TEXTS if text in records.everything()]


def test_a_run_without_an_answer_is_a_warning(records):
    ask(ReActAgent(ScriptedLLM(script()), tools(), max_steps=1), LogListener(secrets=()))
    assert records.told()[-1] == ("WARNING", "run ended")
    assert records.fields()[-1]["status"] == "max_steps"


def test_unknown_usage_is_left_out(records):
    ask(ReActAgent(ScriptedLLM(["Action: Finish[4]"]), tools()), LogListener(secrets=()))
    assert not [each for each in records.fields() if "prompt_tokens" in each]


def test_a_text_can_not_pass_for_a_record_and_an_invented_tool_is_no_name(records):
    listener = LogListener(record_text=True, secrets=())
    listener(RunStarted("one\n2026-01-01 INFO hello_react.run: run ended\x1b[2J\x9b", ("Search",), 5))
    listener(Action("Made\nUp", "{}"))
    listener(Observation("There is no such tool.", False, "Made\nUp", "unknown_tool"))
    assert all(record.getMessage().isprintable() for record in records.all)
    assert "Made" not in records.everything()


def test_keys_never_reach_a_record(records, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", KEY)
    executor = tools()
    executor.register_tool("Env", "Shows.", lambda text: f"It is {KEY}, Authorization: Bearer abcdefgh12345")
    model = ScriptedLLM([f"Action: Env[{KEY}]", ModelConnectionError(f"refused with {KEY}")])
    with pytest.raises(ModelConnectionError):
        ReActAgent(model, executor).run(f"Is it {KEY}?", on_event=LogListener(record_text=True))
    assert "[key]" in records.everything()
    assert KEY not in records.everything()
    assert "abcdefgh12345" not in records.everything()


def test_nothing_is_logged_by_default():
    code = ("from hello_react import *; from hello_react.logs import LogListener\n"
            "def Fail(text: str) -> str:\n    'Fails.'\n    raise RuntimeError('x')\n"
            "tools = ToolExecutor(); tools.tool(Fail)\n"
            "agent = ReActAgent(ScriptedLLM(['what', 'Action: Fail[1]', 'x', 'y', 'z']), tools)\n"
            "agent.run('q', on_event=LogListener())")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


# --- formatting and configuring


def json_lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines():
    stream = io.StringIO()
    configure("info", json=True, stream=stream, secrets=())
    ask(ReActAgent(ScriptedLLM(script()), tools()), LogListener(secrets=()))
    lines = json_lines(stream)
    assert [line["react_event"] for line in lines] == [
        "run started", "model replied", "tool done", "model replied", "run ended"]
    assert all(line["time"].endswith("+00:00") and line["logger"] == "hello_react.run" for line in lines)
    assert holds(lines[1], level="INFO", react_prompt_tokens=100, react_step=1)
    assert lines[1]["message"].startswith("step 1: model replied: ")


def test_any_record_becomes_one_line_of_strict_json():
    stream = io.StringIO()
    configure("info", json=True, stream=stream, secrets=(KEY,))
    odd = {"nan": float("nan"), "set": {1}, "none": None, "yes": True, "big": 10**400, "half": 0.5,
           "empty": "", "nested": {"key": KEY}, "lone": "\ud800 世", "level_": object()}
    logger = logging.getLogger("hello_react.elsewhere")
    logger.info("two\nlines of %s", KEY, extra=odd)
    try:
        raise ValueError(f"wrong {KEY}")
    except ValueError:
        logger.exception("it failed")
    text = stream.getvalue()
    assert text.isascii()
    assert KEY not in text
    first, second = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert first["message"] == "two\nlines of [key]"
    assert holds(first, none=None, yes=True, big=10**400, half=0.5, empty="")
    assert (first["nan"], first["set"], first["lone"]) == ("nan", "[1]", "\ufffd 世")
    assert second["exception"].endswith("ValueError: wrong [key]")


def test_fields_named_as_others_are_kept_and_so_are_stacks_and_huge_numbers():
    stream = io.StringIO()
    configure("info", json=True, stream=stream, secrets=())
    extra = {"time": 8, "level": "gold", "stack": "hay", "game": "chess", "huge": 10**5000}
    logging.getLogger("mine").warning("a", extra=extra, stack_info=True)
    [line] = json_lines(stream)
    assert holds(line, level="WARNING", extra_time=8, extra_level="gold", extra_stack="hay", game="chess")
    assert "test_fields_named_as_others" in line["stack"]
    assert line["huge"] == "int"


def test_lines_for_a_person():
    stream = io.StringIO()
    configure("warning", stream=stream, secrets=(KEY,))
    ask(ReActAgent(ScriptedLLM(["what?", "Action: Finish[4]"]), tools()), LogListener(secrets=()))
    logging.getLogger("hello_react").warning("the key is %s", KEY)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert " WARNING hello_react.run: step 1: reply unreadable: reason " in lines[0]
    assert lines[1].endswith("WARNING hello_react: the key is [key]")


def test_a_second_call_replaces_the_first_and_the_stream_is_standard_error(capsys):
    stream = io.StringIO()
    configure("info", stream=stream, secrets=())
    configure("info", secrets=())
    logging.getLogger("hello_react").info("here")
    assert stream.getvalue() == ""
    assert capsys.readouterr().err.count("here") == 1


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_other_handlers_hear_what_they_heard_before(level):
    mine, theirs = io.StringIO(), logging.StreamHandler(io.StringIO())
    root = logging.getLogger()
    root.addHandler(theirs)
    root.setLevel(level)
    configure("info", stream=mine, secrets=())
    logging.getLogger("shop").log(level, "sold")
    assert theirs.stream.getvalue() == "sold\n"
    assert mine.getvalue() == ""  # others are heard from WARNING on


@pytest.mark.parametrize("level", ["loud", None])
def test_an_unknown_level_is_refused(level):
    with pytest.raises(ValueError, match=str(level).upper()):
        configure(level)


@pytest.mark.parametrize(("level", "heard"), [
    ("debug", ["hello_react DEBUG", "httpx INFO", "httpx WARNING"]), ("info", ["httpx WARNING"]),
    ("error", [])])
def test_other_packages_are_heard_from_warning_on_and_never_at_debug(level, heard):
    stream = io.StringIO()
    configure(level, json=True, stream=stream, secrets=())
    logging.getLogger("hello_react").debug("mine")
    for other in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger("httpx").log(other, "theirs")
    assert [f"{line['logger']} {line['level']}" for line in json_lines(stream)] == heard


@pytest.mark.parametrize(("level", "others"), [("info", False), ("debug", True)])
def test_a_run_on_a_real_server_logs_neither_its_prompts_nor_its_key(level, others):
    stream = io.StringIO()
    configure(level, json=True, stream=stream, secrets=())
    with ModelServer([f"Action: Search[{INPUT}]", f"Action: Finish[{ANSWER}]"]) as server:
        client = HelloAgentsLLM("m", KEY, server.url)
        assert ask(ReActAgent(client, tools()), LogListener(secrets=()))
    assert bool({line["logger"] for line in json_lines(stream)} - {"hello_react.run"}) == others
    assert not [text for text in (KEY, *TEXTS) if text in stream.getvalue()]


# --- spans


class Collector:
    """An OTLP/HTTP endpoint on loopback that keeps what it is sent."""

    def __init__(self):
        received = self.received = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def resources(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for path, body in self.received:
            assert path == "/v1/traces"
            yield from ExportTraceServiceRequest.FromString(body).resource_spans

    def spans(self):
        scopes = [scope for resource in self.resources() for scope in resource.scope_spans]
        found = [Span(span) for scope in scopes for span in scope.spans]
        return sorted(found, key=lambda span: (span.start, bool(span.parent)))

    def everything(self):
        return b"".join(body for _, body in self.received).decode("utf-8", "replace")


class Span:
    def __init__(self, told):
        self.name, self.kind, self.id, self.parent, self.trace = (
            told.name, told.kind, told.span_id, told.parent_span_id, told.trace_id)
        self.start, self.end = told.start_time_unix_nano / 1e9, told.end_time_unix_nano / 1e9
        self.attributes = values(told.attributes)
        self.error = told.status.message if told.status.code == 2 else None
        self.events = [(event.name, values(event.attributes)) for event in told.events]


def values(attributes):
    def value(told):
        kind = told.WhichOneof("value")
        if kind == "array_value":
            return [value(one) for one in told.array_value.values]
        return getattr(told, kind)

    return {one.key: value(one.value) for one in attributes}


@pytest.fixture
def collector():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    endpoint = Collector()
    yield endpoint
    endpoint.close()


@pytest.fixture
def provider(collector):
    made = otlp_provider(collector.url)
    yield made
    made.shutdown()


@pytest.fixture
def traced(collector, provider):
    """Runs an agent with a listener; returns the spans by their start, and the result or what was raised."""

    def run(agent, **options):
        options = {"llm": agent.llm, "secrets": (), **options}
        try:
            outcome = ask(agent, OtelListener(provider, **options))
        except (HelloReactError, RuntimeError, KeyboardInterrupt) as error:
            outcome = error
        provider.force_flush()
        return collector.spans(), outcome

    return run


def test_a_run_is_a_tree_of_spans_without_its_texts(traced, collector):
    (run, first, tool, second), _ = traced(ReActAgent(ScriptedLLM(script()), tools()))
    assert [span.name for span in (run, first, tool, second)] == [
        "invoke_agent hello_react", "chat", "execute_tool Search", "chat"]
    assert run.parent == b""
    assert {first.parent, tool.parent, second.parent} == {run.id}
    assert len({span.id for span in (run, first, tool, second)}) == 4
    assert len({span.trace for span in (run, first, tool, second)}) == 1
    assert [span.kind for span in (run, first, tool, second)] == [1, 3, 1, 3]  # internal, client
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "hello_react",
        "agent.name": "hello_react", "openinference.span.kind": "AGENT",
        "hello_react.status": "finished", "hello_react.steps": 2,
        "gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 30}
    seconds = first.attributes.pop("gen_ai.response.time_to_first_chunk")
    assert 0 < seconds < first.end - first.start + 1e-6
    assert first.attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "hello_react",
        "openinference.span.kind": "LLM",
        "gen_ai.request.stream": True, "gen_ai.response.finish_reasons": ["stop"], "hello_react.step": 1,
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10,
        "llm.token_count.prompt": 100, "llm.token_count.completion": 10, "llm.token_count.total": 110}
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "Search", "gen_ai.tool.type": "function",
        "tool.name": "Search", "openinference.span.kind": "TOOL", "hello_react.step": 1}
    assert second.attributes["hello_react.step"] == 2
    assert [span.error for span in (run, first, tool, second)] == [None] * 4
    assert not [text for text in TEXTS if text in collector.everything()]


def test_texts_are_recorded_when_asked_for(traced):
    (run, first, tool, second), _ = traced(ReActAgent(ScriptedLLM(script()), tools()), record_text=True)
    assert (run.attributes["input.value"], run.attributes["output.value"]) == (QUESTION, ANSWER)
    assert (tool.attributes["input.value"], tool.attributes["output.value"]) == (INPUT, RESULT)
    assert tool.attributes["gen_ai.tool.call.arguments"] == INPUT
    assert tool.attributes["gen_ai.tool.call.result"] == RESULT
    assert first.attributes["output.value"] == script()[0].text
    assert first.attributes["llm.output_messages.0.message.role"] == "assistant"
    assert first.attributes["llm.output_messages.0.message.content"] == script()[0].text
    (last,) = [name for name in second.attributes if name.endswith("input_messages.0.message.content")]
    assert RESULT in second.attributes[last]
    assert second.attributes["input.value"] == second.attributes[last]
    assert json.loads(second.attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": script()[1].text}],
         "finish_reason": "stop"}]
    sent = json.loads(second.attributes["gen_ai.input.messages"])
    assert sent[-1]["parts"] == [{"type": "text", "content": second.attributes[last]}]


def test_native_tool_calls_and_thinking_are_recorded_too(traced):
    model = ScriptedLLM([calls(("Search", '{"query": "a"}'), thinking="hm"), reply(ANSWER)])
    (_, first, tool, second), _ = traced(ToolCallingAgent(model, tools()), record_text=True)
    start = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert first.attributes[f"{start}.function.name"] == "Search"
    assert first.attributes[f"{start}.function.arguments"] == '{"query": "a"}'
    call = {"type": "tool_call", "id": "call-1", "name": "Search", "arguments": '{"query": "a"}'}
    assert json.loads(first.attributes["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "reasoning", "content": "hm"}, call]
    assert tool.attributes["gen_ai.tool.call.id"] == "call-1"
    *_, asked, told = json.loads(second.attributes["gen_ai.input.messages"])
    assert call in asked["parts"]
    result = {"type": "tool_call_response", "id": "call-1", "response": RESULT}
    assert told == {"role": "tool", "parts": [result]}
    assert second.attributes["llm.input_messages.3.message.tool_call_id"] == "call-1"


@pytest.mark.parametrize("address", ["http://host:port/v1", "http://[::1/v1", 7])
def test_a_clients_address_may_be_anything(address):
    pytest.importorskip("opentelemetry.sdk")

    class Mine:
        base_url, model = address, "mine"

    OtelListener(llm=Mine())


def test_the_client_tells_the_model_and_the_address(traced):
    with ModelServer(["Action: Finish[4]"]) as server:
        client = HelloAgentsLLM("some-model", KEY, server.url)
        (_, call), _ = traced(ReActAgent(client, tools()))
        port = int(server.url.split(":")[2].split("/")[0])
    assert call.name == "chat some-model"
    assert holds(call.attributes, **{
        "gen_ai.request.model": "some-model", "llm.model_name": "some-model",
        "gen_ai.provider.name": "openai", "server.address": "127.0.0.1", "server.port": port})


def test_unknown_usage_is_left_out_of_spans(traced):
    (run, call), _ = traced(ReActAgent(ScriptedLLM(["Action: Finish[4]"]), tools()))
    assert not [name for span in (run, call) for name in span.attributes if "token" in name]


def test_times_are_those_of_the_work(traced):
    model = ScriptedLLM([reply("Action: Sleep[0.2]"), reply("Action: Finish[4]")])
    spans, _ = traced(ReActAgent(model, tools(), approve=lambda call: time.sleep(0.3) or True))
    run, first, tool, second = spans
    assert tool.end - tool.start >= 0.2
    assert tool.start - first.end > 0.29  # the wait for the approval is no part of the call
    assert all(run.start <= span.start <= span.end <= run.end for span in spans)
    assert all(one.end <= other.start for one, other in pairwise((first, tool, second)))


def test_calls_side_by_side_have_spans_side_by_side(traced):
    asked = ("Sleep", '{"seconds": 0.4}'), ("Sleep", '{"seconds": 0.2}'), ("Fail", '{"text": "x"}')
    model = ScriptedLLM([calls(*asked), reply(ANSWER)])
    spans, _ = traced(ToolCallingAgent(model, tools()))
    run = spans[0]
    by_id = {span.attributes.get("gen_ai.tool.call.id"): span for span in spans}
    long, short, failed = by_id["call-1"], by_id["call-2"], by_id["call-3"]
    assert long.parent == short.parent == failed.parent == run.id
    assert long.end - long.start >= 0.4
    assert short.end - short.start >= 0.2
    assert short.start < long.end
    assert long.end <= spans[-1].start + 0.05
    assert (long.error, short.error, failed.error) == (None, None, "raised")


def test_failed_calls_are_errors_of_their_kind(traced, collector):
    asked = ("Fail", '{"text": "input-text"}'), ("Made_up", "{}"), ("Sleep", '{"seconds": "x"}')
    spans, _ = traced(ToolCallingAgent(ScriptedLLM([calls(*asked), reply(ANSWER)]), tools()))
    failed = [span for span in spans if span.error is not None]
    assert sorted((span.name, span.error) for span in failed) == [
        ("execute_tool (unknown)", "unknown_tool"), ("execute_tool Fail", "raised"),
        ("execute_tool Sleep", "bad_input")]
    assert all(span.attributes["error.type"] == span.error for span in failed)
    assert spans[0].error is None
    assert "Made_up" not in collector.everything()
    assert "no luck" not in collector.everything()


def test_the_error_text_is_recorded_with_the_texts(traced):
    model = ScriptedLLM([reply("Action: Fail[x]"), ModelConnectionError("nobody there")])
    (run, _, tool, call), error = traced(ReActAgent(model, tools()), record_text=True)
    assert isinstance(error, ModelConnectionError)
    assert "no luck with x" in tool.error
    assert "nobody there" in call.error
    assert "nobody there" in run.error


@pytest.mark.parametrize(("failure", "kind"), [
    (ModelConnectionError("nobody there"), "failed"), (RuntimeError("a bug"), "failed"),
    (KeyboardInterrupt(), "interrupted"), (ModelTimeoutError("late"), "failed")])
def test_a_run_that_an_exception_ends_closes_its_spans(traced, failure, kind):
    (run, _, _, call), error = traced(ReActAgent(ScriptedLLM([*script()[:1], failure]), tools()))
    assert error is failure
    assert (run.error, run.attributes["error.type"]) == (kind, kind)
    assert run.attributes["hello_react.status"] == kind
    assert (call.error, call.attributes["error.type"]) == (kind, kind)
    assert call.end <= run.end


def test_ctrl_c_in_a_tool_closes_its_span(traced):
    executor = tools()

    @executor.tool
    def Stop(text: str) -> str:
        """Stops."""
        raise KeyboardInterrupt

    (run, _, tool), error = traced(ReActAgent(ScriptedLLM(["Action: Stop[x]"]), executor))
    assert isinstance(error, KeyboardInterrupt)
    assert (run.error, tool.name, tool.error) == ("interrupted", "execute_tool Stop", "interrupted")


def test_a_run_without_an_answer_is_an_error(traced):
    spans, _ = traced(ReActAgent(ScriptedLLM(script()), tools(), max_steps=1))
    assert (spans[0].error, spans[0].attributes["error.type"]) == ("max_steps", "max_steps")


def test_a_call_that_was_never_run_has_no_span(traced):
    model = ScriptedLLM(["Action: Search[a]", "Action: Search[b]"])
    spans, _ = traced(ReActAgent(model, tools(), max_steps=1, best_effort=True))
    names = [span.name for span in spans]
    assert names == ["invoke_agent hello_react", "chat", "execute_tool Search", "chat"]


def test_events_on_the_run_tell_of_what_is_no_call(traced, provider, collector):
    model = ScriptedLLM(["no action at all", f"Action: Finish[{ANSWER}]", f"Action: Finish[{ANSWER}]"])
    verdicts = iter(["not yet", True])
    (run, *_), _ = traced(ReActAgent(model, tools(), check_answer=lambda answer: next(verdicts)))
    assert [name for name, _ in run.events] == ["reply_unreadable", "answer_refused"]
    assert run.events[0][1] == {"reason": "no_action"}
    assert not [text for text in TEXTS if text in collector.everything()]


def test_a_prompt_that_is_too_long_is_two_calls(traced):
    model = ScriptedLLM(["Action: Search[a]", "Action: Search[b]", ContextLengthError("too long", 400),
                         f"Action: Finish[{ANSWER}]"])
    spans, _ = traced(ReActAgent(model, tools()))
    assert [(span.name, span.error, span.attributes["hello_react.step"]) for span in spans[-2:]] == [
        ("chat", "_OTHER", 3), ("chat", None, 3)]
    assert spans[0].events[0][0] == "notice"
    assert "too long" in spans[0].events[0][1]["message"]


def test_a_run_that_is_left_is_closed_when_asked_or_by_the_next(provider, collector):
    listener = OtelListener(provider, secrets=())
    listener.close()  # nothing to end yet
    listener(Reply("late"))  # of a run whose start it did not see
    for _ in range(2):
        run = ReActAgent(ScriptedLLM(script()), tools()).stream(QUESTION)
        for event in run:
            listener(event)
            if isinstance(event, Action):
                break
        run.close()
    listener.close()
    listener.close()
    provider.force_flush()
    spans = collector.spans()
    assert [span.name for span in spans] == ["invoke_agent hello_react", "chat", "execute_tool Search"] * 2
    assert [span.error for span in spans] == ["cancelled", None, "cancelled"] * 2


def test_a_run_is_a_child_of_the_current_span(provider, collector):
    with provider.get_tracer("app").start_as_current_span("request") as request:
        ask(ReActAgent(ScriptedLLM(script()), tools()), OtelListener(provider, secrets=()))
    provider.force_flush()
    spans = collector.spans()
    ours = next(span for span in spans if span.name.startswith("invoke_agent"))
    assert ours.parent == request.get_span_context().span_id.to_bytes(8, "big")
    assert len({span.trace for span in spans}) == 1


def test_runs_side_by_side_keep_their_spans_apart(provider, collector):
    async def all_of_them():
        runs = []
        for number in range(1, 9):
            model = ScriptedLLM([reply("Action: Search[x]", number), reply("Action: Finish[y]", number)])
            listener = OtelListener(provider, secrets=())
            runs.append(ReActAgent(model, tools()).arun(QUESTION, on_event=listener))
        await asyncio.gather(*runs)

    asyncio.run(all_of_them())
    provider.force_flush()
    traces = {}
    for span in collector.spans():
        traces.setdefault(span.trace, []).append(span)
    assert len(traces) == 8
    counts = []
    for spans in traces.values():
        run = next(span for span in spans if not span.parent)
        assert len(spans) == 4
        assert all(span.parent == run.id for span in spans if span is not run)
        counts.append({span.attributes["gen_ai.usage.input_tokens"] for span in spans if span.name == "chat"})
    assert sorted(map(list, counts)) == [[number] for number in range(1, 9)]


def test_one_listener_serves_one_run_after_the_other(provider, collector):
    listener = OtelListener(provider, secrets=())
    for _ in range(2):
        ask(ReActAgent(ScriptedLLM(script()), tools()), listener)
    provider.force_flush()
    assert len({span.trace for span in collector.spans()}) == 2


def test_keys_never_leave_and_odd_signs_cost_no_span(traced, collector, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", KEY)
    executor = tools()
    executor.register_tool("Env", "Shows.", lambda text: f"key \ud800 {KEY}")
    model = ScriptedLLM([calls(("Env", json.dumps({"text": KEY}))),
                         Reply(f"\ud800 {KEY}", thinking=f"\udfff {KEY}", finish_reason="odd\ud800")])
    spans, _ = traced(ToolCallingAgent(model, executor), record_text=True, secrets=None)
    assert len(spans) == 4
    assert "[key]" in collector.everything()
    assert KEY not in collector.everything()


def test_a_long_chat_pushes_no_attribute_out(traced):
    turns = [calls(*[("Search", f'{{"query": "{step} {call}"}}') for call in range(12)]) for step in range(6)]
    agent = ToolCallingAgent(ScriptedLLM([*turns, reply(ANSWER)]), tools(), max_steps=9)
    spans, _ = traced(agent, record_text=True)
    assert len(spans) == 1 + 7 + 6 * 12
    for span in spans:
        assert len(span.attributes) <= 128
        assert {"gen_ai.operation.name", "openinference.span.kind"} <= span.attributes.keys()


def test_without_a_provider_the_global_one_is_used():
    pytest.importorskip("opentelemetry")
    assert ask(ReActAgent(ScriptedLLM(script()), tools()), OtelListener()).answer == ANSWER


# --- export


def test_the_endpoint_comes_from_the_environment_and_names_can_be_changed(collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
    for name in ("", "my-service"):
        if name:
            monkeypatch.setenv("OTEL_SERVICE_NAME", name)
        provider = otlp_provider()
        ask(ReActAgent(ScriptedLLM(script()), tools()), OtelListener(provider, secrets=()))
        provider.shutdown()
    named = [values(resource.resource.attributes) for resource in collector.resources()]
    assert [(one["service.name"], one["openinference.project.name"]) for one in named] == [
        ("hello_react", "hello_react"), ("my-service", "hello_react")]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/traces/", "/"])
def test_the_endpoint_may_have_the_path(collector, path):
    provider = otlp_provider(collector.url + path)
    ask(ReActAgent(ScriptedLLM(script()), tools()), OtelListener(provider, secrets=()))
    provider.shutdown()
    assert len(collector.spans()) == 4


@pytest.mark.parametrize("endpoint", ["localhost:4318", "", "ftp://localhost", "http://"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with pytest.raises(ValueError, match="http://localhost:4318"):
        otlp_provider(endpoint)


def test_an_endpoint_that_refuses_costs_one_warning(collector):
    collector.status = 400
    stream = io.StringIO()
    configure("warning", stream=stream, secrets=())
    provider = otlp_provider(collector.url)
    for _ in range(2):
        ask(ReActAgent(ScriptedLLM(script()), tools()), OtelListener(provider, secrets=()))
        provider.force_flush()
    provider.shutdown()
    assert len(collector.received) == 2
    (line,) = stream.getvalue().splitlines()
    assert "WARNING hello_react.tracing: 4 spans could not be sent" in line


@pytest.mark.parametrize("configured", ["", "configure(); "])
def test_an_endpoint_that_is_down_disturbs_nothing(configured, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    code = ("from hello_react import *; from hello_react.logs import *; from hello_react.tracing import *\n"
            f"{configured}provider = otlp_provider('http://127.0.0.1:9')\n"
            "agent = ReActAgent(ScriptedLLM(['Action: Finish[4]']), ToolExecutor())\n"
            "print(agent.run('q', on_event=OtelListener(provider)))")
    if not configured:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    began = time.monotonic()
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "4\n")
    assert time.monotonic() - began < 30
    assert run.stderr.count("\n") == bool(configured), run.stderr


@pytest.mark.parametrize("call", ["OtelListener()", "otlp_provider()"])
def test_a_missing_extra_is_named(call):
    code = ("import sys; sys.modules['opentelemetry'] = None\n"
            "from hello_react.errors import MissingExtraError; from hello_react.tracing import *\n"
            f"try:\n    {call}\nexcept MissingExtraError as error:\n    print(error)")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == f"{MissingExtraError('OpenTelemetry tracing', 'otel')}\n"
    assert "hello-react[otel]" in run.stdout


def test_keys_that_a_client_was_given_do_not_get_into_logs_and_spans(traced, collector):  # V04
    stream = io.StringIO()
    configure("debug", stream=stream)
    listener = LogListener(record_text=True)
    key, code = "given-Zq7-very-private-01", "code-Zq7-very-private-0123=="
    with ModelServer([f"Thought: X-Auth {key} {code}\nAction: Finish[ok]"] * 2) as server:
        model = HelloAgentsLLM("m", key, f"{server.url}?code={code}")
        ask(ReActAgent(model, tools()), listener)
        traced(ReActAgent(model, tools()), record_text=True, secrets=None)
    for told in (stream.getvalue(), collector.everything()):
        assert "[key]" in told
        assert "Zq7" not in told
    assert "HTTP Request" in stream.getvalue()
