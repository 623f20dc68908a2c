"""Every fault of a model's server, in the middle of a run, with a trace being written.

Whatever happens: the run ends by itself, with an answer that is true, or with one typed error; the trace holds every
event up to `RunEnded`. Three runs each; HELLO_REACT_FAULT_RUNS=200 does more by hand. The second half throws random
replies and random tools at the loop; HELLO_REACT_FUZZ=5000 does that for longer.
"""

import os
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hello_react import (
    HelloAgentsLLM,
    ModelError,
    ReActAgent,
    Reply,
    RunEnded,
    ScriptedLLM,
    Token,
    ToolCallingAgent,
    ToolError,
    ToolExecutor,
)
from hello_react.errors import HelloReactError
from hello_react.llm import OBSERVATION_STOPS, FunctionLLM
from hello_react.parser import Action
from hello_react.trace import TraceWriter, read
from tests.servers import (
    DONE,
    ModelServer,
    breaks_after,
    byte_by_byte,
    chunk,
    error,
    event,
    events,
    hangs_up,
    honours_stop,
    message,
    never_answers,
    pieces,
    pings_for_ever,
    raw,
    refuses,
    stalls_after,
    status,
    text,
    usage,
    web_page,
)

RUNS = int(os.environ.get("HELLO_REACT_FAULT_RUNS", "3"))
FUZZ = int(os.environ.get("HELLO_REACT_FUZZ", "60"))
LOOK = "Thought: look\nAction: Search[Oslo]"
END = "Thought: done\nAction: Finish[seven hundred thousand]"
FINISH = END  # what the fault stands in front of

FAULTS = {
    "L01 preamble without choices": events({"choices": []}, *pieces(END), DONE),
    "L02 usage chunk without choices": events(*pieces(END), usage(3, 4), DONE),
    "L03 null content": events(chunk(None, role="assistant"), *pieces(END), DONE),
    "L04 no delta": events(
        {"choices": [{"index": 0}]}, {"choices": [{"index": 0, "delta": None}]}, *pieces(END), DONE
    ),
    "L05 null reasoning": events(
        *[chunk(c["choices"][0]["delta"].get("content"), reasoning_content=None) for c in pieces(END)],
        chunk("", "stop"),
        DONE,
    ),
    "L07 all in reasoning": events(chunk(None, reasoning_content=END), chunk("", "stop"), DONE),
    "L08 list content": events(
        chunk([{"type": "text", "text": END}, {"type": "image", "url": "x"}]), chunk("", "stop"), DONE
    ),
    "L09 error event": events(*pieces(END)[:2], {"error": {"message": "upstream limit"}}),
    "L10 error event after the answer": events(*pieces(END), {"error": {"message": "late"}}),
    "L11 breaks off": breaks_after(*pieces(END)[:3]),
    "L12 no end mark": events(*pieces(END)),
    "L13 breaks off at once": hangs_up(),
    "L14 cut after a call": events(chunk(LOOK + " and th"), chunk("", "length"), DONE),
    "L15 cut answer": events(chunk("Thought: x\nFinal Answer: seven hund"), chunk("", "length"), DONE),
    "L16 cut bracket": events(chunk("Thought: x\nAction: Finish[seven hund"), chunk("", "length"), DONE),
    "L15 filtered answer": events(chunk("Thought: x\nFinal Answer: seven hund"), chunk("", "content_filter"), DONE),
    "L15 aborted answer": events(chunk("Thought: x\nFinal Answer: seven hund"), chunk("", "abort"), DONE),
    "L17 too many requests": error(429, "slow down"),
    "L19 odd pause": status(429, {"error": {"message": "slow"}}, retry_after="abc"),
    "L20 negative pause": status(429, {"error": {"message": "slow"}}, retry_after="-5"),
    "L22 bad gateway": error(502, "bad gateway"),
    "L23 bad request": error(400, "this is wrong"),
    "L24 wrong key": error(401, "wrong key secret-key-123456"),
    "L25 gateway page": web_page(502),
    "L26 page": web_page(200),
    "L30 silence": never_answers(),
    "L31 stall": stalls_after(*pieces(END)[:3]),
    "L32 pings": pings_for_ever(*pieces(END)[:3]),
    "L33 temperature": refuses("temperature", then=END),
    "L34 stop": refuses("stop", then=END),
    "L36 stream options": refuses("stream_options", then=END),
    "L37 invented": text(LOOK + "\nObservation: fake\nThought: so\nAction: Finish[fake]"),
    "L38 invented, split": events(
        *[chunk(sign) for sign in LOOK + "\nObservation: fake\nAction: Finish[fake]"], chunk("", "stop"), DONE
    ),
    "L39 thinking": honours_stop("<think>\nObservation: hm\n</think>\n" + END),
    "L40 invented ending": text("Thought: x\nAction: Search[a]\nAction: Finish[fake]"),
    "L41 byte by byte": byte_by_byte(*pieces("Thought: 是\nAction: Finish[seven hundred thousand]"), DONE),
    "L42 odd events": raw(
        b": ping\r\n\r\n",
        *[event(p).replace(b"data: ", b"data:").replace(b"\n", b"\r\n") for p in pieces(END)],
        b"data:[DONE]\r\n\r\n",
    ),
    "L45 plain body": status(200, message(END)),
    "L46 no choices": status(200, {"choices": None}),
    "L47 empty": text(""),
    "L49 broken json": raw(b'data: {"choices": [{"del\n\n'),
    "L52 unknown model": error(404, "model not found"),
    "L54 lone surrogate": text("Thought: \ud83d\nAction: Finish[seven hundred thousand]"),
    "L55 two choices": events(
        *[{"choices": [p["choices"][0], {"index": 1, "delta": {"content": "no"}}]} for p in pieces(END)], DONE
    ),
    "L56 glued": raw(b"data: " + b"".join(event(p)[6:].strip() for p in pieces(END)) + b"\n\n", event(DONE)),
}
MAY_ANSWER = {"seven hundred thousand", "Oslo has it"}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_in_mid_run(name, nothing_of_this_machine):
    for number in range(RUNS):
        tools = ToolExecutor()
        tools.register_tool("Search", "Looks things up.", lambda query: f"about {query}")
        path = nothing_of_this_machine / f"{number}.jsonl"
        # The fault is the second reply, and it comes as often as it is asked for; then a regular end.
        with ModelServer([LOOK, *[FAULTS[name]] * 4, *[END] * 9]) as server:
            model = HelloAgentsLLM(
                "m", "secret-key-123456", server.url, timeout=0.4, max_retries=3, sleep=lambda s: None
            )
            failure = None
            with TraceWriter(path, secrets=("secret-key-123456",)) as trace:
                try:
                    result = ReActAgent(model, tools, max_steps=6).run("How many?", on_event=trace)
                except ModelError as raised:
                    failure, result = raised, raised.result
        assert result is not None
        if result.status == "finished":
            assert result.answer in MAY_ANSWER, result
        else:
            assert result.answer is None
        assert (failure is None) == (result.status != "failed")
        if failure is not None:
            assert len(str(failure).splitlines()) == 1
            assert "secret-key" not in str(failure)
        assert all(call == Action("Search", call.input) for step in result.steps for call in step.calls)
        assert "fake" not in str([step.calls for step in result.steps])
        recorded = read(path)
        assert recorded.bad_lines == 0
        assert recorded.runs[-1][-1] == RunEnded(result)
        assert "secret-key" not in path.read_text("utf-8")
        for body in server.bodies:
            prompt = body["messages"][0]["content"]
            assert not re.search(
                r"^Observation: (?!about |Your reply|10080|There is no|The Action|Not run)",
                prompt,
                re.MULTILINE,
            ), prompt


@pytest.mark.parametrize("reason", ["content_filter", "sensitive", "network_error", "abort", "length"])
@pytest.mark.parametrize(
    ("agent", "half", "whole"),
    [
        (ReActAgent, "Thought: x\nFinal Answer: seven hund", END),
        (ToolCallingAgent, "seven hund", "seven hundred thousand"),
    ],
)
def test_half_an_answer_is_none_for_either_agent(agent, half, whole, reason):
    script = ScriptedLLM([Reply(half, finish_reason=reason), whole])
    assert agent(script, ToolExecutor()).run("q", verbose=False).answer == "seven hundred thousand"
    with ModelServer([events(chunk(half), chunk(finish=reason), DONE), whole]) as server:
        model = HelloAgentsLLM("m", "secret-key-123456", server.url, timeout=20, sleep=lambda s: None)
        run = agent(model, ToolExecutor())
        if reason in ("content_filter", "sensitive"):
            with pytest.raises(ModelError, match="content filter") as caught:
                run.run("q", verbose=False)
            assert caught.value.result.answer is None
        else:
            assert run.run("q", verbose=False).answer == "seven hundred thousand"


# --- random models, random tools

PIECES = [
    "Thought: ",
    "Action: ",
    "Observation: ",
    "Search[",
    "Add[",
    "Finish[",
    "]",
    "[",
    "{",
    "}",
    '"',
    "\n",
    " ",
    "x",
    "答案",
    "42",
    "Final Answer: ",
    "Action Input: ",
    "```",
    "<think>",
    "</think>",
    "**",
    '{"action": "Search", "action_input": "x"}',
    "(",
    ")",
    "Danger[now]",
    ", ",
    "\r\n",
    "\u2028",
    "\ud83d",
    "<|im_end|>",
    "None",
    "行动：",
    "观察：",
]
REPLIES = st.lists(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), min_size=1, max_size=6)
RESULTS = st.one_of(
    st.text(max_size=40),
    st.none(),
    st.integers(),
    st.lists(st.integers(), max_size=3),
    st.binary(max_size=8),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.sampled_from([ValueError("{x}"), ToolError("no"), KeyError(1), SystemExit(2)]),
)
ENTRY = re.compile(r"^(?:Thought: |Action: |Observation: |\| |\(|\[|```|.*)", re.DOTALL)


@settings(max_examples=FUZZ, suppress_health_check=list(HealthCheck))
@given(replies=REPLIES, results=st.lists(RESULTS, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_random_replies_and_tools_never_break_the_loop(replies, results, seed):
    chance = random.Random(seed)
    ran = []

    def tool(name):
        def run(text):
            ran.append((name, text))
            result = chance.choice(results)
            if isinstance(result, BaseException):
                raise result
            return result

        return run

    tools = ToolExecutor()
    for name in ("Search", "Add", "Danger"):
        tools.register_tool(name, "A tool.", tool(name), timeout=None)
    model = ScriptedLLM([*replies, *["Thought: x\nAction: Finish[end]"] * 9])
    run = list(ReActAgent(model, tools, max_steps=8).stream("q {x}"))
    result = run[-1].result
    assert result.status in ("finished", "max_steps", "malformed", "repeating")
    assert (result.answer is not None) == (result.status == "finished")
    called = [(call.tool, call.input) for step in result.steps for call in step.calls]
    assert [name for name, _ in ran] == [name for name, _ in called]
    for step in result.steps:  # nothing is run that the reply does not hold whole
        for call in step.calls:
            assert (
                call.input in step.reply.text.replace("\\", "")
                or call.input.replace('"', "") in step.reply.text
            )
    for sent, following in zip(model.calls, model.calls[1:]):
        before, after = sent[0]["content"], following[0]["content"]
        assert after.startswith(before)
        added = after[len(before) :]
        assert len(re.findall(r"^Observation: ", added, re.MULTILINE)) == 1  # the real one, none invented


@settings(max_examples=FUZZ)
@given(
    reply=st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    cuts=st.lists(st.integers(1, 9), max_size=60),
)
def test_the_stream_cutter_gives_the_same_in_any_chunking(reply, cuts):
    def chunks(messages):
        start = 0
        for size in [*cuts, len(reply) + 1]:
            if start < len(reply):
                yield reply[start : start + size]
            start += size

    def read_all(model):
        try:
            parts = list(model.stream([], stop=OBSERVATION_STOPS))
        except HelloReactError:
            return "", ""
        assert isinstance(parts[-1], Reply)
        shown = "".join(part.text for part in parts if isinstance(part, Token) and not part.thinking)
        return shown, parts[-1].text

    shown, whole = read_all(FunctionLLM(chunks))
    assert (shown, whole) == read_all(ScriptedLLM([reply]))
    assert shown == whole
    assert not re.search(
        r"\S[^\n]*\n\s*Observation: ", whole.split("</think>")[-1]
    ) or whole.lstrip().startswith("Observation")
