"""The model clients against real servers on loopback, fault by fault; L01 and so on are rows of the cases."""

from __future__ import annotations

import gc
import gzip
import json
import os
import socket
import sys
import threading
import time
import warnings
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from hello_react.errors import (
    AuthenticationError,
    BadReplyError,
    ContextLengthError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelStatusError,
    ModelTimeoutError,
    RateLimitError,
    SettingsError,
)
from hello_react.events import Notice, Reply, Token, ToolCall, Usage
from hello_react.llm import (
    OBSERVATION_STOPS,
    FunctionLLM,
    HelloAgentsLLM,
    ScriptedLLM,
    StreamCutter,
    ask,
    default_llm,
)
from hello_react.streaming import ChunkReading, Events, Unreadable
from tests.servers import (
    DONE,
    ModelServer,
    breaks_after,
    byte_by_byte,
    call,
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

KEY = "sk-4f9aQ2cXwE7kLm0pRt5v"
ASKED = [{"role": "user", "content": "What is 2+2?"}]
GOOD = "Thought: easy\nAction: Finish[4]"


def client(server, **options):
    naps = []
    llm = HelloAgentsLLM("model-x", KEY, server.url, **{"timeout": 5, "sleep": naps.append, **options})
    llm.naps = naps
    return llm


def reply_to(*answers, stop=(), tools=None, **options):
    """The reply of a client to a server with these answers."""
    with ModelServer(answers) as server:
        return client(server, **options).think(ASKED, stop=stop, tools=tools)


def failure(kind, *answers, stop=(), tools=None, **options):
    """The error of a client, and how many requests it took."""
    with ModelServer(answers) as server:
        with pytest.raises(ModelError) as caught:
            client(server, **options).think(ASKED, stop=stop, tools=tools)
        assert type(caught.value) is kind
        words = str(caught.value)
        assert "\n" not in words
        assert KEY[:8] not in words
        return words, len(server.requests)


def streamed(*answers, stop=(), **options):
    """Everything a client's stream yields."""
    with ModelServer(answers) as server:
        return list(client(server, **options).stream(ASKED, stop=stop))


def shown(items):
    return "".join(item.text for item in items if isinstance(item, Token) and not item.thinking)


# --- settings ---


def test_arguments_beat_settings_and_camel_case_is_accepted(monkeypatch):
    monkeypatch.setenv("LLM_MODEL_ID", "from-environment")
    monkeypatch.setenv("LLM_API_KEY", "key-from-environment")
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("LLM_TIMEOUT", "7")
    llm = HelloAgentsLLM()
    assert (llm.model, llm.base_url, llm.timeout) == ("from-environment", "http://127.0.0.1:1/v1", 7)
    llm = HelloAgentsLLM("mine", apiKey="k3y", baseUrl="https://example.com/v1", timeout=3)
    assert (llm.model, llm.base_url, llm.timeout) == ("mine", "https://example.com/v1", 3)


@pytest.mark.parametrize(
    "given", [{}, {"model": "m"}, {"model": "m", "api_key": "k3y"}, {"base_url": "http://h/v1"}]
)
def test_missing_settings_are_named_and_only_those(monkeypatch, tmp_path, given):
    monkeypatch.chdir(tmp_path)
    names = {"model": "LLM_MODEL_ID", "api_key": "LLM_API_KEY", "base_url": "LLM_BASE_URL"}
    for name in [*names.values(), "LLM_TIMEOUT"]:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError) as caught:
        HelloAgentsLLM(**given)
    for argument, name in names.items():
        assert (name in str(caught.value)) == (argument not in given)


def test_default_model_is_the_one_that_is_set(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLM_MODEL_ID", "m")
    monkeypatch.setenv("LLM_API_KEY", "k3y")
    monkeypatch.setenv("LLM_BASE_URL", "http://h/v1")
    assert default_llm(max_tokens=9).max_tokens == 9
    monkeypatch.delenv("LLM_API_KEY")
    with pytest.raises(SettingsError, match="Not set: LLM_API_KEY"):
        default_llm()


def test_no_model_at_all_names_three_ways(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as if it were not installed
    with pytest.raises(SettingsError, match=r"LLM_BASE_URL.*on this machine.*hello-react\[local\]"):
        default_llm()


def test_default_timeout_is_sixty_seconds(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_TIMEOUT", raising=False)
    assert HelloAgentsLLM("m", "k3y", "http://h/v1").timeout == 60


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "soon", True])
def test_timeout_must_be_a_positive_number(timeout):
    with pytest.raises(SettingsError, match="timeout"):
        HelloAgentsLLM("m", "k3y", "http://h/v1", timeout)


@pytest.mark.parametrize("retries", [None, "3", -1, 1.5, True])
def test_max_retries_must_be_a_whole_number(retries):
    with pytest.raises(SettingsError, match="max_retries"):
        HelloAgentsLLM("m", "k3y", "http://h/v1", 5, max_retries=retries)


def test_key_with_a_line_end_is_trimmed():  # E14
    with ModelServer([GOOD]) as server:
        HelloAgentsLLM("m", f" {KEY}\r\n", server.url, 5).think(ASKED)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "key", ["your-api-key", "YOUR_API_KEY", "sk-xxx", "<key>", "你的密钥", "sk-a\nb", "sk-ключ"]
)
def test_placeholder_or_impossible_key_is_refused(key):  # E16
    with pytest.raises(SettingsError, match="LLM_API_KEY") as caught:
        HelloAgentsLLM("m", key, "http://h/v1", 5)
    assert key not in str(caught.value)


def test_base_url_without_scheme():  # E15
    with pytest.raises(SettingsError, match="https:// is missing"):
        HelloAgentsLLM("m", "k3y", "api.example.com/v1", 5)


@pytest.mark.parametrize(
    "ending", ["/v1/", "//v1", "/v1//", "/v1/chat/completions", "/v1/chat/completions/", "/v1"]
)
def test_base_url_with_stray_slashes_or_the_full_path(ending):  # L27, L28
    with ModelServer([GOOD]) as server:
        HelloAgentsLLM("m", KEY, server.origin + ending, 5).think(ASKED)
        assert [request.path for request in server.requests] == ["/v1/chat/completions"]


def test_query_of_the_base_url_is_kept():
    with ModelServer([GOOD]) as server:
        HelloAgentsLLM("m", KEY, server.url + "?api-version=7", 5).think(ASKED)
        assert server.requests[0].path == "/v1/chat/completions?api-version=7"


def test_repr_shows_no_key_and_no_login():
    llm = HelloAgentsLLM("model-x", KEY, "https://user:secret@example.com/v1?key=abc", 5)
    assert repr(llm) == "HelloAgentsLLM(model='model-x', base_url='https://example.com/v1')"


# --- what is sent ---


def test_request_holds_what_was_asked_and_nothing_else():
    with ModelServer([GOOD, GOOD]) as server:
        llm = client(server, max_tokens=9, extra_body={"seed": 1})
        llm.think(ASKED)
        llm.think(
            ASKED,
            0.5,
            stop="END",
            tools=[{"type": "function"}],
            tool_choice="auto",
            max_tokens=None,
            extra_body={"top_k": 2},
        )
    common = {
        "model": "model-x",
        "messages": ASKED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "seed": 1,
    }
    assert server.bodies == [
        {**common, "temperature": 0},
        {
            **common,
            "temperature": 0.5,
            "stop": ["END"],
            "tools": [{"type": "function"}],
            "tool_choice": "auto",
            "top_k": 2,
        },
    ]


def test_temperature_none_leaves_it_to_the_server():
    with ModelServer([GOOD]) as server:
        client(server, temperature=None).think(ASKED)
        assert "temperature" not in server.bodies[0]


def test_stream_false_asks_for_a_whole_answer():
    with ModelServer([GOOD]) as server:
        assert client(server).think(ASKED, stream=False).text == GOOD
        assert "stream_options" not in server.bodies[0]


def test_lone_surrogate_and_nul_are_made_safe_before_sending():  # L54
    with ModelServer([GOOD]) as server:
        nested = [{"role": "tool", "content": [{"type": "text", "text": "a\x00b\ud800c"}], "n": (1, None)}]
        client(server).think(nested)
        sent = server.bodies[0]["messages"]
        assert sent == [{"role": "tool", "content": [{"type": "text", "text": "ab\ufffdc"}], "n": [1, None]}]
        assert nested[0]["content"][0]["text"] == "a\x00b\ud800c"


def test_stop_none_means_none():
    with ModelServer([FAKE]) as server:
        assert client(server).think(ASKED, stop=None).text == FAKE
        assert "stop" not in server.bodies[0]
    assert ScriptedLLM([FAKE]).think(ASKED, stop=None).text == FAKE


def test_messages_as_a_text_are_refused_before_any_request():
    with ModelServer() as server:
        with pytest.raises(TypeError, match="give a list"):
            client(server).think("2+2?")
        assert server.requests == []


def test_what_openai_finds_in_the_environment_is_not_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-key-entirely")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Secret: 1\nauthorization: Bearer other\nAuthorization: Bearer two"
    )
    with ModelServer([GOOD]) as server:
        client(server).think(ASKED)
        headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not {"openai-organization", "openai-project", "x-secret"} & set(headers)
    assert "secret" not in str(headers)


def test_loopback_is_reached_past_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert reply_to(GOOD).text == GOOD


def test_unusable_proxy_is_a_clear_error(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "weird://127.0.0.1:9")
    with pytest.raises(SettingsError, match="proxy"):
        HelloAgentsLLM("m", KEY, "https://example.invalid/v1", 1).think(ASKED)


# --- reading a stream ---


def test_a_plain_stream():
    items = streamed(text(GOOD, size=5))
    reply = items[-1]
    assert reply == Reply(GOOD, usage=Usage(7, 5), finish_reason="stop")
    assert shown(items) == GOOD
    assert all(isinstance(item, Token) for item in items[:-1])
    assert sum(isinstance(item, Reply) for item in items) == 1


def test_empty_choices_first():  # L01
    assert reply_to(events({"choices": [], "prompt_filter_results": []}, *pieces(GOOD), DONE)).text == GOOD


@pytest.mark.parametrize("index", [{}, {"index": None}, {"index": 0}])
def test_of_several_choices_the_first_is_read_numbered_or_not(index):
    first, second = ({**index, "delta": {"content": text}} for text in (GOOD, "Another."))
    assert reply_to(events({"choices": [first, second]}, DONE)).text == GOOD
    first, second = ({**index, "message": {"content": text}} for text in (GOOD, "Another."))
    assert reply_to({"choices": [first, second]}).text == GOOD


def test_empty_choices_with_usage_last():  # L02
    assert reply_to(events(*pieces(GOOD), usage(11, 3), DONE)) == Reply(
        GOOD, usage=Usage(11, 3), finish_reason="stop"
    )


@pytest.mark.parametrize(
    "told", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": "7"}, {"prompt_tokens": True}, [],
             {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": -1, "completion_tokens": -1}]
)
def test_unknown_usage_is_unknown(told):
    assert reply_to(events(*pieces(GOOD), {"choices": [], "usage": told}, DONE)).usage == Usage()


@pytest.mark.parametrize("last", [{}, {"total_tokens": 14}, {"prompt_tokens": 0}, {"completion_tokens": -1}])
def test_known_usage_stays_known(last):
    told = events(*pieces(GOOD), usage(11, 3), {"choices": [], "usage": last}, DONE)
    assert reply_to(told).usage == Usage(11, 3)


def test_null_content():  # L03
    assert (
        reply_to(
            events(
                chunk(role="assistant") | {"x": 1},
                {"choices": [{"delta": {"role": "assistant", "content": None}}]},
                *pieces(GOOD),
                DONE,
            )
        ).text
        == GOOD
    )


@pytest.mark.parametrize(
    "choice", [{"index": 0}, {"delta": None}, {"delta": {}}, {"delta": []}, None, "x", {"index": None}]
)
def test_chunk_without_delta(choice):  # L04
    assert reply_to(events({}, {"choices": [choice]}, *pieces(GOOD), DONE)).text == GOOD


def test_null_reasoning_in_every_delta():  # L05
    told = events(
        *(chunk(part, reasoning_content=None, reasoning=None) for part in ("a", "b")),
        chunk(finish="stop"),
        DONE,
    )
    assert reply_to(told) == Reply("ab", finish_reason="stop")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart(field):
    told = events(chunk(**{field: "Hm, "}), chunk(**{field: "4?"}), *pieces(GOOD), DONE)
    items = streamed(told)
    assert items[-1].thinking == "Hm, 4?"
    assert shown(items) == items[-1].text == GOOD
    assert [item.text for item in items if isinstance(item, Token) and item.thinking] == ["Hm, ", "4?"]


@pytest.mark.parametrize("thinking", ["Hm, 4?", [{"type": "text", "text": "Hm, "}, "4?"]])
def test_thinking_as_a_typed_part(thinking):
    parts = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": GOOD}]
    for answer in (events(*(chunk([part]) for part in parts), chunk(finish="stop"), DONE), message(parts)):
        reply = reply_to(answer)
        assert (reply.thinking, reply.text) == ("Hm, 4?", GOOD)


def test_content_as_typed_parts():  # L08
    parts = [
        {"type": "text", "text": "Action: "},
        {"type": "image_url", "image_url": {"url": "x"}},
        "odd",
        None,
        {"type": "thinking", "thinking": [{"type": "text", "text": "no"}]},
        {"text": "Finish"},
        {"type": "text"},
    ]
    assert (
        reply_to(events(chunk(parts), chunk([{"type": "text", "text": "[4]"}], "stop"), DONE)).text
        == "Action: oddFinish[4]"
    )
    assert reply_to(message(parts)).text == "Action: oddFinish"


@pytest.mark.parametrize(
    "content", [["Action: ", "Finish[4]"], {"type": "text", "text": "Action: Finish[4]"}]
)
def test_content_as_plain_texts_or_one_part(content):
    assert reply_to(events(chunk(content, "stop"), DONE)).text == "Action: Finish[4]"
    assert reply_to(message(content)).text == "Action: Finish[4]"


def test_refusal_counts_as_text():
    assert (
        reply_to(events(chunk(refusal="I can't help."), chunk(finish="stop"), DONE)).text == "I can't help."
    )


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"error": {"message": "upstream limit"}}, "upstream limit"),
        ({"error": "overloaded"}, "overloaded"),
        ({"object": "error", "message": "engine died", "code": 500}, "engine died"),
        ({"error": {"code": 1301, "msg": "unsafe content"}, "choices": []}, "unsafe content"),
    ],
)
def test_error_event_in_the_stream(sent, words):  # L09
    said, requests = failure(BadReplyError, events(*pieces("Action: Finish[no]")[:4], sent, DONE))
    assert words in said
    assert requests == 1


def test_error_told_by_the_name_of_the_event():
    said, _ = failure(
        BadReplyError, raw(event(chunk("a")), b'event: error\ndata: {"message": "out of memory"}\n\n')
    )
    assert "out of memory" in said


def test_error_in_plain_words_told_by_the_name_of_the_event():
    said, requests = failure(BadReplyError, raw(event(chunk("a")), b"event: error\ndata: upstream exploded\n\n"))
    assert "sent an error in place of a reply: upstream exploded." in said
    assert "LLM_BASE_URL" not in said
    assert requests == 1


@pytest.mark.parametrize("data", ["ping", "null", "[1]", '{"type": "ping"}', '{"half', "2026-01-01 12:00"])
def test_event_of_another_name_is_skipped(data):
    odd = f"event: ping\ndata: {data}\n\n".encode()
    whole = raw(odd, event(chunk("Half ")), odd, event(chunk("whole", "stop")), odd, event(DONE))
    assert reply_to(whole).text == "Half whole"


def test_chunks_count_whatever_their_event_is_called():
    named = [b"event: delta\n" + event(one) for one in pieces(GOOD)]
    assert reply_to(raw(*named, b"event: done\n" + event(DONE))).text == GOOD
    said, _ = failure(BadReplyError, raw(b"event: message\ndata: oops\n\n"))
    assert "did not answer with JSON: oops" in said


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        ({"message": "slow down", "code": 429}, RateLimitError),
        ({"message": "slow down", "type": "rate_limit_exceeded"}, RateLimitError),
        ({"message": "no", "code": "context_length_exceeded"}, ContextLengthError),
    ],
)
def test_error_event_keeps_its_kind(sent, kind):
    assert failure(kind, events(chunk("a"), {"error": sent}))[1] == 1


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        ({"message": "Provider returned error", "code": 502}, BadReplyError),
        ({"message": "No provider", "code": "503"}, BadReplyError),
        ({"message": "Overloaded", "type": "overloaded_error"}, BadReplyError),
        ({"message": "slow down", "code": 429}, RateLimitError),
    ],
)
def test_error_that_may_pass_is_asked_again_before_any_text(sent, kind):
    in_choice = {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": sent}]}
    for answer in (events({"error": sent}), events(in_choice, DONE), {"error": sent}):
        assert reply_to(answer, GOOD).text == GOOD
        said, requests = failure(kind, answer, answer, max_retries=1)
        assert (sent["message"] in said, requests) == (True, 2)
    assert failure(kind, events(chunk("a"), in_choice))[1] == 1


def test_bad_key_told_in_an_error_object():
    said, requests = failure(AuthenticationError, events({"error": {"code": 401, "message": "No credentials"}}))
    assert "LLM_API_KEY" in said
    assert requests == 1


def test_error_object_as_the_whole_body():
    assert "no such thing" in failure(BadReplyError, {"error": {"message": "no such thing"}})[0]


def test_error_echoing_the_key_is_redacted():
    said, _ = failure(BadReplyError, events({"error": {"message": f"bad key {KEY}!"}}))
    assert "bad key [key]!" in said


def test_finish_reason_without_done():  # L12
    assert reply_to(events(*pieces(GOOD))).text == GOOD


@pytest.mark.parametrize("tail", ["DONE", "[done]", '{"cost": 0.0', "stream end", "true"])
def test_finish_reason_then_anything(tail):
    assert reply_to(events(*pieces(GOOD), tail)).text == GOOD


@pytest.mark.parametrize("ending", [breaks_after, stalls_after, pings_for_ever])
def test_finish_reason_then_break_or_silence(ending):
    assert reply_to(ending(*pieces(GOOD)), timeout=0.8).text == GOOD


@pytest.mark.parametrize("ending", [breaks_after, stalls_after, pings_for_ever])
def test_server_that_does_not_end_after_done(ending):
    started = time.monotonic()
    assert reply_to(ending(*pieces(GOOD), usage(1, 2), DONE), timeout=30).usage == Usage(1, 2)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("broken", [breaks_after, events])
def test_stream_that_breaks_off_is_asked_again(broken):
    items = streamed(broken(chunk("Action: Fin"), chunk("ish[no]")), GOOD)
    notice = next(item for item in items if isinstance(item, Notice))
    assert notice.restart
    assert "broke off after 18 characters, trying again in" in notice.text
    assert "(1 of 3)" in notice.text
    assert shown(items) == "Action: Finish[no]" + GOOD
    assert items[-1].text == GOOD


def test_stream_that_breaks_off_before_any_text():
    notice, *rest = streamed(breaks_after(), GOOD)
    assert isinstance(notice, Notice)
    assert not notice.restart
    assert rest[-1].text == GOOD


def test_stream_that_always_breaks_off():
    said, requests = failure(
        ModelConnectionError, *[breaks_after(chunk("Action: Finish[no]"))] * 3, max_retries=2
    )
    assert "broke off after 18 characters" in said
    assert "127.0.0.1" in said
    assert requests == 3


def test_half_a_chunk_at_the_end_is_a_broken_stream():
    assert reply_to(raw(event(chunk("a")), b'data: {"choices": [{"del'), GOOD).text == GOOD


@pytest.mark.parametrize(
    "reason", ["error", "insufficient_system_resource", "abort", "network_error", "ABORTED", "timeout"]
)
def test_finish_reason_of_a_server_that_gave_up(reason):
    broken = events(chunk("half a"), chunk(finish=reason), DONE)
    assert reply_to(broken, GOOD).text == GOOD
    said, requests = failure(ModelConnectionError, *[broken] * 2, max_retries=1)
    assert f"gave up after 6 characters ({reason.lower()})" in said
    assert requests == 2


@pytest.mark.parametrize("reason", ["content_filter", "sensitive", "SAFETY", "refusal"])
@pytest.mark.parametrize("told", ["half a", ""])
def test_finish_reason_of_a_filter(reason, told):
    for answer in (events(chunk(told), chunk(finish=reason), DONE), message(told, reason)):
        said, requests = failure(BadReplyError, answer, GOOD)
        assert "content filter of http://127.0.0.1:" in said
        assert f"ended the reply after {len(told)} characters (finish_reason {reason.lower()})" in said
        assert requests == 1


@pytest.mark.parametrize("reason", ["eos", "stop_sequence", "end_turn", "COMPLETE", "tool_calls", "", None])
def test_other_words_for_a_normal_end(reason):
    reply = reply_to(message("Four.", reason))
    assert (reply.text, reply.cut, reply.finish_reason) == ("Four.", False, (reason or "").lower())


def test_finish_reason_length_is_kept():  # L14, L15
    reply = reply_to(events(chunk("Final Answer: The phone has"), chunk(finish="length"), DONE))
    assert reply.finish_reason == "length"
    assert reply.cut
    assert reply.text == "Final Answer: The phone has"


@pytest.mark.parametrize(
    "reason",
    ["max_tokens", "MAX_TOKENS", "LENGTH", "max_output_tokens", "model_length", "model_context_window_exceeded"],
)
def test_other_words_for_length(reason):
    reply = reply_to(events(chunk("The phone has"), chunk(finish=reason), DONE))
    assert (reply.finish_reason, reply.cut) == ("length", True)
    assert reply_to(message("The phone has", reason)).cut


def test_multi_byte_characters_split_over_writes():  # L41
    assert reply_to(byte_by_byte(*pieces("思考：查一下。🎉", 3), DONE)).text == "思考：查一下。🎉"


@pytest.mark.parametrize("channel", ["content", "reasoning_content"])
def test_a_sign_split_over_chunks_is_joined(channel):
    parts = ["Hi \ud83d", "", "\ude00 \ud83d", "x\ud83d"]
    if channel == "content":
        items = streamed(events(*map(chunk, parts), chunk(finish="stop"), DONE))
        assert shown(items) == items[-1].text == "Hi 😀 \ufffdx\ufffd"
    else:
        items = streamed(events(*(chunk(**{channel: part}) for part in parts), *pieces(GOOD), DONE))
        assert items[-1].text == GOOD
        assert items[-1].thinking == "Hi 😀 \ufffdx\ufffd"


@pytest.mark.parametrize("stop", [(), OBSERVATION_STOPS])
def test_halves_of_signs_from_a_stand_in(stop):
    told = "<think>\ud83d</think>a\ud83d" + "\ud83d\ude00" * 40 + "\ud83d"
    for llm in (ScriptedLLM([told]), FunctionLLM(lambda m: iter(told)), FunctionLLM(lambda m: Reply(told))):
        reply = llm.think(ASKED, stop=stop)
        assert (reply.thinking, reply.text) == ("\ufffd", "a\ufffd" + "😀" * 40 + "\ufffd")


def test_halves_of_signs_in_the_arguments_of_a_call():
    assert calls([call(0, "a", "A", '{"x": "\ud83d')], [call(0, None, None, '\ude00\ud83d"}')]) == (
        ToolCall("a", "A", '{"x": "😀\ufffd"}'),
    )


def test_event_stream_in_every_allowed_shape():  # L42
    first, second, third = (json.dumps(chunk(part)) for part in "abc")
    head, _, tail = second.partition(" ")
    body = (
        f": ping\r\n\r\ndata:{first}\r\n\r\n: ping\r\nid: 7\r\nretry: 10\r\nevent: message\r\n"
        f"data: {head}\r\ndata:{tail}\r\n\r\ndata\r\n\r\ndata: {third}\n\n"
        f"data: {json.dumps(chunk(finish='stop'))}\r\rdata: [DONE]\n\n"
    )
    assert reply_to(raw(body.encode())).text == "abc"
    assert reply_to(raw(*(bytes([byte]) for byte in body.encode()))).text == "abc"


def test_stream_of_bare_carriage_returns():
    assert reply_to(raw(*(event(one, "\r\r") for one in [*pieces(GOOD), DONE]))).text == GOOD


def test_done_in_the_same_event_and_last_event_unclosed():
    assert reply_to(raw(event(chunk("a")), event(chunk("b", "stop"), "\n") + b"data: [DONE]")).text == "ab"


def test_line_separators_inside_json_are_text():
    assert (
        reply_to(events(chunk("a\u2028b\u2029c\x85d\x1ce"), chunk(finish="stop"), DONE)).text
        == "a\u2028b\u2029c\x85d\x1ce"
    )


def test_byte_order_mark_and_blank_lines_first():
    assert reply_to(raw(b"\xef", b"\xbb\xbf", b"\r\n", *map(event, [*pieces(GOOD), DONE]))).text == GOOD


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/html"])
def test_content_type_does_not_matter(kind):
    assert reply_to(raw(*map(event, [*pieces(GOOD), DONE]), content_type=kind)).text == GOOD


def test_stream_asked_and_plain_json_given():  # L45
    assert reply_to(message(GOOD)) == Reply(GOOD, usage=Usage(7, 5), finish_reason="stop")
    assert reply_to(raw(b"  ", json.dumps(message(GOOD)).encode())).text == GOOD


WHOLE = json.dumps(message("Action: Finish[\"é\"]", usage=None, more=[True, -1.5]))


@pytest.mark.parametrize("end", range(1, len(WHOLE)))
def test_plain_json_that_ends_early_is_a_broken_stream(end):
    with pytest.raises(Unreadable) as caught:
        list(ChunkReading(False).read(b"", WHOLE[:end]))
    assert caught.value.early


def test_plain_json_that_ends_early_is_asked_again():
    half = WHOLE[: len(WHOLE) // 2]
    assert reply_to(status(200, half), GOOD).text == GOOD
    assert reply_to(status(200, "{"), GOOD).text == GOOD

    def zipped(exchange, request):
        packed = gzip.compress(json.dumps(message("long " * 50 + os.urandom(500).hex())).encode())
        exchange.send(200, packed[: len(packed) // 2], Content_Encoding="gzip")

    assert reply_to(zipped, GOOD).text == GOOD
    said, requests = failure(ModelConnectionError, *[status(200, half)] * 2, max_retries=1)
    assert "broke off" in said
    assert requests == 2


@pytest.mark.parametrize(
    "body", ["{oops}", "{'a': 1}", '{"a" 1}', "true", "1" * 5_000, "[" * 100_000, '{"a": 1} and so on']
)
def test_plain_body_that_is_no_json_is_not_asked_again(body):
    assert failure(BadReplyError, status(200, body))[1] == 1


def test_plain_json_without_finish_reason():
    assert reply_to(message(GOOD, None)).text == GOOD


def test_whole_message_or_text_in_the_chunks():
    old = [{"choices": [{"index": 0, "message": {"content": part}}]} for part in ("a", "b")]
    assert reply_to(events(*old, DONE)).text == "ab"
    assert reply_to(events({"choices": [{"text": "ab", "finish_reason": "stop"}]}, DONE)).text == "ab"
    assert reply_to(events(*pieces("ab"), message("ab"), DONE)).text == "ab"
    assert reply_to(events(chunk("", role="assistant"), message("ab"), DONE)).text == "ab"


@pytest.mark.parametrize(
    "body",
    [
        {"choices": None, "base_resp": {"status_msg": "bad group id"}},
        {"message": "bad group id"},
        {"detail": "bad group id", "choices": "x"},
    ],
)
def test_body_without_choices(body):  # L46
    said, requests = failure(BadReplyError, body)
    assert "bad group id" in said
    assert requests == 1
    assert "bad group id" in failure(BadReplyError, events(body, DONE))[0]


def test_only_the_first_choice_is_read():  # L55
    def both(mine, other):
        return {
            "choices": [{"index": 1, "delta": {"content": other}}, {"index": 0, "delta": {"content": mine}}]
        }

    assert reply_to(events(both("a", "x"), both("b", "y"), chunk(finish="stop"), DONE)).text == "ab"


@pytest.mark.parametrize("index", ["0", 0.0, None, "x"])
def test_odd_index_of_a_choice(index):
    told = {"choices": [{"index": index, "delta": {"content": GOOD}, "finish_reason": "stop"}]}
    assert reply_to(events(told, DONE)).text == GOOD
    assert reply_to(events({"choices": [{"index": "1", "delta": {"content": "x"}}]}, told, DONE)).text == GOOD


def test_glued_json_objects_in_one_event():  # L56
    first, second = json.dumps(chunk("a")), json.dumps(chunk("b", "stop"))
    assert reply_to(events(first + second, DONE)).text == "ab"
    assert reply_to(events(f"{first}  {second} ")).text == "ab"
    assert reply_to(events(f"[{first}, {second}]")).text == "ab"


@pytest.mark.parametrize("junk", ["oops", '{"choices": [', "17", '"text"', "null", "1" * 5_000, "[" * 100_000])
def test_chunk_that_is_no_json_object(junk):
    said, requests = failure(BadReplyError, events(chunk("a"), junk, chunk("b", "stop"), DONE))
    assert "did not answer with JSON" in said
    assert junk[:4] in said
    assert requests == 1


@pytest.mark.parametrize("page", [web_page(), status(200, "upstream connect error"), status(200, "[1, 2]")])
def test_answer_that_is_no_json(page):  # L26
    said, requests = failure(BadReplyError, page)
    assert "LLM_BASE_URL" in said
    assert "/v1" in said
    assert "empty reply" not in said.lower()
    assert requests == 1


def test_empty_body():
    assert reply_to(status(200, ""), GOOD).text == GOOD


# --- thinking ---


@pytest.mark.parametrize("tag", ["<think>", "<thinking>", "<Think>", "<reasoning>", "<thought>", "[THINK]"])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_leading_think_block(tag, size):
    items = streamed(text(f"\n{tag}2 < 4[1] [/thin{tag[0]}/{tag[1:]}\n\n{GOOD}", size))
    reply = items[-1]
    assert reply.thinking == "2 < 4[1] [/thin"
    assert reply.text.strip() == shown(items).strip() == GOOD
    assert "<" not in reply.text


def test_several_think_blocks_and_an_empty_one():
    assert reply_to(text("<think>\n\n</think>\n\n<think>b</think> " + GOOD)) == Reply(
        GOOD, "\n\nb", (), Usage(7, 5), "stop"
    )


@pytest.mark.parametrize(
    "content", ["Thought: <think> is a tag </think>", "<thi", "<", "a <think>b</think>", "<thinker>", "[THI", "[1]"]
)
def test_think_tags_that_are_text(content):
    items = streamed(text(content, 2))
    assert items[-1].text == shown(items) == content
    assert items[-1].thinking == ""


def test_observation_inside_the_thinking_is_not_cut():  # L39
    content = "<think>plan\nObservation: maybe\nso</think>Action: Search[x]\nObservation: fake"
    reply = reply_to(text(content, 4), stop=OBSERVATION_STOPS)
    assert (reply.text, reply.thinking) == ("Action: Search[x]", "plan\nObservation: maybe\nso")


def test_stop_inside_the_thinking_is_asked_again_without_stop():  # L39
    content = f"<think>plan\nObservation: maybe</think>\n{GOOD}"
    with ModelServer([honours_stop(content)] * 3) as server:
        llm = client(server)
        assert llm.think(ASKED, stop=OBSERVATION_STOPS).text == GOOD
        assert llm.think(ASKED, stop=OBSERVATION_STOPS).text == GOOD
        assert ["stop" in body for body in server.bodies] == [True, False, False]


def test_model_that_thinks_is_not_sent_stop_again():  # L39
    with ModelServer([events(chunk(reasoning_content="hm"), *pieces(GOOD), DONE), GOOD]) as server:
        llm = client(server)
        llm.think(ASKED, stop=OBSERVATION_STOPS)
        llm.think(ASKED, stop=OBSERVATION_STOPS)
        assert ["stop" in body for body in server.bodies] == [True, False]


def test_whole_reply_in_the_thinking():  # L07
    said, requests = failure(
        BadReplyError, *[events(chunk(reasoning_content=GOOD), chunk("", "stop"), DONE)] * 4
    )
    assert "Empty reply" in said
    assert "reasoning_content" in said
    assert requests == 2


def test_whole_reply_in_the_thinking_then_a_good_one():
    items = streamed(events(chunk(reasoning_content="hm"), chunk(finish="stop"), DONE), GOOD)
    notice = next(item for item in items if isinstance(item, Notice))
    assert notice == Notice("empty reply, trying again (1 of 1)", restart=True)
    assert items[-1] == Reply(GOOD, usage=Usage(7, 5), finish_reason="stop")


def test_unclosed_think_block():
    said, requests = failure(BadReplyError, *[text(f"<think>{GOOD}")] * 4)
    assert "thinking" in said
    assert requests == 2


# --- empty replies ---


def test_empty_three_times_running():  # L47
    said, requests = failure(BadReplyError, *[text("")] * 5)
    assert "Empty reply" in said
    assert "no text at all" in said
    assert requests == 3


def test_blank_replies_then_a_good_one():
    items = streamed(text(" \n"), events(chunk(tool_calls=[], finish="tool_calls"), DONE), GOOD)
    assert items[-1].text == GOOD
    assert [item.text for item in items if isinstance(item, Notice)] == [
        "empty reply, trying again (1 of 2)",
        "empty reply, trying again (2 of 2)",
    ]


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([chunk(finish="content_filter")], "content filter"),
        ([chunk(finish="length")], "max_tokens"),
        ([chunk(reasoning_content="hm"), chunk(finish="length")], "while it was thinking"),
    ],
)
def test_empty_reply_names_its_cause(chunks, words):
    said, requests = failure(BadReplyError, *[events(*chunks, DONE)] * 4)
    assert words in said
    assert requests == 1


def test_no_retries_means_none_for_empty_replies_too():
    assert failure(BadReplyError, text(""), GOOD, max_retries=0)[1] == 1


# --- the cut before an invented observation ---

FAKE = "Thought: look\nAction: Search[x]\nObservation: fake\nAction: Finish[fake]"
CUT = "Thought: look\nAction: Search[x]"


def cut(content, size=1):
    """What a cutter shows of `content`, fed in pieces of `size`, and whether it cut."""
    cutter = StreamCutter()
    fed = "".join(cutter.feed(content[start : start + size]) for start in range(0, len(content), size))
    return fed + cutter.close(), cutter.done


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_invented_observation_is_cut(size):  # L37
    with ModelServer([text(FAKE, size)]) as server:
        llm = client(server)
        items = list(llm.stream(ASKED, stop=OBSERVATION_STOPS))
        assert server.bodies[0]["stop"] == list(OBSERVATION_STOPS)
    assert shown(items) == items[-1].text == CUT
    assert items[-1].finish_reason == "stop"
    assert items[-1].usage == Usage()


def test_stop_word_split_over_chunks():  # L38
    items = streamed(
        events(
            chunk("Action: Search[x]\nObser"),
            chunk("vation: fake"),
            chunk("\nAction: Finish[fake]", "stop"),
            DONE,
        ),
        stop=OBSERVATION_STOPS,
    )
    assert shown(items) == items[-1].text == "Action: Search[x]"


def test_nothing_is_read_after_the_cut():
    started = time.monotonic()
    reply = reply_to(
        stalls_after(*map(chunk, [CUT, "\nObservation: fa"])), stop=OBSERVATION_STOPS, timeout=30
    )
    assert reply.text == CUT
    assert time.monotonic() - started < 10


def test_without_stop_nothing_is_cut():
    assert reply_to(text(FAKE)).text == FAKE


def test_cut_in_a_whole_answer():
    assert reply_to(message(FAKE), stop=OBSERVATION_STOPS).text == CUT


LABELS = [
    "Observation:",
    "observation :",
    "OBSERVATION：",
    "**Observation:**",
    "**Observation**:",
    "## Observation:",
    "- Observation:",
    "> Observation:",
    "`Observation`:",
    "Observation 1:",
    "Observation #2:",
    "Observation (3):",
    "**Observation 12:**",
    "  Observation:",
    "\tObservation:",
    "观察：",
    "观察:",
    "观察结果：",
    "**观察**：",
    "观察 1：",
    "\u3000观察：",
    "1. Observation:",
    "Observations:",
    "Observation\n",
    "**Observation**\n",
    "观察结果\n",
]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_labels_that_are_cut(label, size):
    assert cut(f"{CUT}\n{label} fake", size) == (CUT, True)
    assert cut(f"{CUT}\r\n \n{label} fake", size) == (CUT, True)


@pytest.mark.parametrize(
    "line",
    [
        "Observation shows that",
        "Observational data:",
        "My Observation: x",
        "观察到：x",
        "x观察：y",
        "Observation of stars: many",
        "Obs:",
        "Observable: x",
        "观",
        "Ob",
        "- 12 obs",
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_lines_that_are_not_cut(line, size):
    content = f"Thought: a\n{line}\nAction: Finish[x]\n"
    assert cut(content, size) == (content, False)
    assert cut(f"Thought: a\n{line}", size) == (f"Thought: a\n{line}", False)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_leading_observation_is_kept_for_the_parser(size):
    for lead in ("Observation: old\n", "\n\nObservation: old\n", "观察：old\n"):
        assert cut(f"{lead}{CUT}\nObservation: new", size) == (f"{lead}{CUT}", True)


@pytest.mark.parametrize(
    "torso",
    ["Observation", "Observ", "obse", "**Observation", "Observation 2", "观察", "观察结", " Observation"],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_torso_of_a_label_at_the_end_is_dropped(torso, size):
    assert cut(f"{CUT}\n{torso}", size) == (CUT, False)
    assert cut(torso, size) == (torso, False)


@pytest.mark.parametrize(
    "end", ["- Observation", "3. 观察", "* **Observation**", "Observation]", "Obse]", "- Observation]", "观察】"]
)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_last_item_of_a_list_and_the_end_of_an_argument_are_no_torso(end, size):
    assert cut(f"Thought: a\nAction: Finish[The parts:\n{end}", size)[0].endswith(end)


@pytest.mark.parametrize("answer", [text("one END two", 1), message("one END two"), honours_stop("one END two")])
def test_the_callers_stop_words_end_the_reply_whatever_the_server_makes_of_them(answer):
    for stop in ("END", ["x", "END"], ("END", *OBSERVATION_STOPS)):
        assert reply_to(answer, stop=stop).text.rstrip() == "one"


def test_the_callers_stop_words_hold_without_the_parameter():  # L34, L39
    with ModelServer([refuses("stop", then="one END two")] * 3) as server:
        llm = client(server)
        assert [llm.think(ASKED, stop=["END"]).text for _ in range(2)] == ["one", "one"]
    thinks = events(chunk(reasoning_content="END, hm"), *pieces("\none END two"), DONE)
    with ModelServer([thinks, thinks]) as server:
        llm = client(server)
        assert [llm.think(ASKED, stop=["END", "\n"]).text.strip() for _ in range(2)] == ["one", "one"]
        assert ["stop" in body for body in server.bodies] == [True, False]


def test_the_callers_stop_words_end_the_reply_of_a_stand_in():
    for llm in (ScriptedLLM(["one END two"]), FunctionLLM(lambda m: iter("one END two"))):
        items = list(llm.stream(ASKED, stop="END"))
        assert shown(items) == items[-1].text == "one"
    assert list(ask(OnlyThink("one END two"), ASKED, stop=["END"]))[-1].text == "one"


@pytest.mark.parametrize(
    ("content", "stop", "shown"),
    [
        ("one END two", ["END"], "one"),
        ("one EN", ["END"], "one EN"),
        ("EEND", ["END"], "E"),
        ("a\n\nb", ["\n\n"], "a"),
        ("\n\na\n\nb", ["\n\n"], "\n\na"),
        ("abcd", ["abcd", "bc"], "a"),
        ("xabc", ["xabc", "bc"], ""),
        ("a END\nObservation: x", ["END"], "a"),
        ("a\nObservation: x END", ["END"], "a"),
        ("Observation shows END", [*OBSERVATION_STOPS, "END"], "Observation shows"),
        ("a\nObservation shows b", [*OBSERVATION_STOPS, ""], "a\nObservation shows b"),
        ("a b", None, "a b"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_cutter_with_stop_words(content, stop, shown, size):
    cutter = StreamCutter(stop)
    fed = "".join(cutter.feed(content[at : at + size]) for at in range(0, len(content), size))
    assert fed + cutter.close() == shown
    assert cutter.done == (shown != content)


def test_torso_left_by_the_server_is_dropped():
    items = streamed(text(f"{CUT}\nObserv"), stop=OBSERVATION_STOPS)
    assert shown(items) == items[-1].text == CUT


def test_what_was_held_back_comes_at_the_end():
    items = streamed(text(f"{GOOD}\n- "), stop=OBSERVATION_STOPS)
    assert shown(items) == items[-1].text == f"{GOOD}\n- "


def test_trailing_blanks_and_words_survive_the_cutter():
    for content in ("a\n", "a\n\n  ", "a\n- ", "a\nword", "\n", "a\n1", ""):
        assert cut(content) == (content, False)


def test_cutter_takes_linear_time_on_hostile_text():
    started = time.process_time()
    for content in (
        " " * 100_000,
        "\n" * 100_000,
        "a\n" + " " * 100_000,
        "\n o" * 30_000,
        "a\n" + "观" * 100_000,
        ("\n" + " " * 32) * 3_000,
        "a\nobservation" + " " * 100_000,
        "a\n" + "observation" * 9_000,
    ):
        for size in (1, 1_000_000):
            cut(content, size)
    assert time.process_time() - started < 20


def test_nothing_is_held_back_for_long():
    cutter = StreamCutter()
    assert cutter.feed("Thought: a\nThe end. ") == "Thought: a\nThe end."
    assert cutter.feed("So") == " So"
    assert len(cutter.feed("\n" + " " * 500)) > 400


# --- waiting and trying again ---


def test_retry_after_is_waited_for():  # L17
    with ModelServer([status(429, retry_after="1"), status(429, retry_after="1"), GOOD]) as server:
        llm = client(server)
        items = list(llm.stream(ASKED))
        assert len(server.requests) == 3
    assert llm.naps == [1, 1]
    assert items[0] == Notice("429 from the server, trying again in 1 s (1 of 3)")
    assert items[-1].text == GOOD


@pytest.mark.parametrize(
    "value", ["abc", "-5", "nan", "inf", "", "1e999", "1,5", "Wed, 99 Foo 2026 00:00:00 GMT",
              "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"]
)
def test_unusable_retry_after(value):  # L19
    with ModelServer([status(429, retry_after=value), GOOD]) as server:
        llm = client(server)
        assert llm.think(ASKED).text == GOOD
    assert len(llm.naps) == 1
    assert 0.5 <= llm.naps[0] <= 0.65


def test_retry_after_as_a_date():
    for zone in ("GMT", "-0000"):
        then = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=20)).replace("+0000", zone)
        with ModelServer([status(503, retry_after=then), GOOD]) as server:
            llm = client(server)
            llm.think(ASKED)
        assert 15 < llm.naps[0] <= 20


def test_retry_after_in_milliseconds_and_of_zero():
    with ModelServer(
        [status(429, retry_after_ms="250", retry_after="9"), status(429, retry_after="0"), GOOD]
    ) as server:
        llm = client(server)
        assert llm.think(ASKED).text == GOOD
    assert llm.naps == [0.25]


def test_long_retry_after_is_not_waited_for():
    said, requests = failure(RateLimitError, status(429, retry_after="3600"), GOOD)
    assert "3600 s" in said
    assert requests == 1


def test_backoff_grows_and_has_a_ceiling():
    with ModelServer([status(500)] * 7 + [GOOD]) as server:
        llm = client(server, max_retries=7)
        llm.think(ASKED)
    assert llm.naps == sorted(llm.naps)
    assert llm.naps[0] < 0.7
    assert llm.naps[-1] == 8


def test_server_errors_then_success():  # L22
    with ModelServer([status(500, "oops"), web_page(502), status(503), GOOD]) as server:
        llm = client(server)
        assert llm.think(ASKED).text == GOOD
        assert len(server.requests) == 4


def test_server_errors_past_the_limit():  # L22
    said, requests = failure(ModelStatusError, *[error(503, "overloaded")] * 3, max_retries=2)
    assert "503" in said
    assert "overloaded" in said
    assert requests == 3


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 504, 529])
def test_statuses_that_are_tried_again(code):
    assert reply_to(status(code), GOOD).text == GOOD


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 405, 413, 422])
def test_statuses_that_are_not_tried_again(code):
    with ModelServer([status(code), GOOD]) as server:
        with pytest.raises(ModelStatusError) as caught:
            client(server).think(ASKED)
        assert caught.value.status == code
        assert len(server.requests) == 1


def test_rate_limit_past_the_limit():
    said, requests = failure(RateLimitError, *[error(429, "slow down")] * 3, max_retries=2)
    assert "slow down" in said
    assert requests == 3


def test_no_credit_is_not_waited_for():
    said, requests = failure(
        RateLimitError, error(429, "You exceeded your current quota", code="insufficient_quota")
    )
    assert "credit" in said
    assert requests == 1


def test_hang_up_is_tried_again():
    assert reply_to(hangs_up(), hangs_up(), GOOD).text == GOOD


def test_connection_refused():
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{spare.getsockname()[1]}/v1"
    naps = []
    with pytest.raises(ModelConnectionError, match="refused") as caught:
        HelloAgentsLLM("m", KEY, url, 5, sleep=naps.append).think(ASKED)
    assert url in str(caught.value)
    assert "LLM_BASE_URL" in str(caught.value)
    assert len(naps) == 3


def test_server_that_never_answers():  # L30
    started = time.monotonic()
    said, requests = failure(ModelTimeoutError, *[never_answers()] * 2, timeout=0.3, max_retries=1)
    assert "LLM_TIMEOUT" in said
    assert "0.3 s" in said
    assert requests == 2
    assert time.monotonic() - started < 5


def test_error_status_whose_body_never_comes():
    def half(exchange, request):
        exchange.send_response(500)
        exchange.send_header("Content-Length", "100")
        exchange.end_headers()
        exchange.stall()

    assert failure(ModelTimeoutError, half, timeout=0.3, max_retries=0)[1] == 1


def test_silence_between_chunks():  # L31
    said, requests = failure(
        ModelTimeoutError, *[stalls_after(*map(chunk, "abc"))] * 2, timeout=0.6, max_retries=1
    )
    assert "stalled after 3 characters" in said
    assert requests == 2


def test_mere_signs_of_life_do_not_count():
    said, _ = failure(ModelTimeoutError, pings_for_ever(chunk("a")), timeout=0.6, max_retries=0)
    assert "stalled after 1 characters" in said


def test_stalled_stream_is_asked_again():
    items = streamed(stalls_after(chunk("abc")), GOOD, timeout=0.8)
    assert [item.restart for item in items if isinstance(item, Notice)] == [True]
    assert items[-1].text == GOOD


def test_time_limit_of_one_call():
    def drips(exchange, request):
        exchange.begin()
        while not exchange.server.owner.closing.wait(0.05):
            exchange.piece(event(chunk("x")))

    with ModelServer([drips, never_answers(), status(429, retry_after="30")]) as server:
        llm = client(server)
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(ModelError):
                llm.think(ASKED, timeout=0.4)
            assert time.monotonic() - started < 4
        assert len(server.requests) == 3
        with pytest.raises(ModelTimeoutError, match="no time"):
            llm.think(ASKED, timeout=0)
        assert len(server.requests) == 3
        assert llm.naps == []


# --- errors and what they say ---


def test_bad_request_shows_the_servers_words():  # L23
    said, requests = failure(ModelStatusError, error(400, "messages: at least one is needed"))
    assert "messages: at least one is needed" in said
    assert requests == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": "plain"}, "plain"),
        ({"error": "a text"}, "a text"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        (
            {"detail": [{"loc": ["body", "messages", 0], "msg": "field required"}]},
            "body.messages.0: field required",
        ),
        ({"code": 5, "odd": True}, '"odd": true'),
        ("just text", "just text"),
        ("", "no message"),
        ("[" * 100_000, "[[["),
    ],
)
def test_error_bodies_of_many_shapes(body, words):
    assert words in failure(ModelStatusError, status(400, body))[0]


@pytest.mark.parametrize("code", [401, 403])
def test_refused_key(code):  # L24
    for echoed in (
        KEY,
        f"{KEY[:9]}********{KEY[-4:]}",
        f"****{KEY[-4:]}",
        f"{KEY[:5]}...{KEY[-4:]}",
        KEY[:12],
        KEY[6:],
    ):
        said, requests = failure(
            AuthenticationError, error(code, f"Incorrect API key provided: {echoed}. Find yours.")
        )
        assert "LLM_API_KEY" in said
        assert "provided: [key]" in said
        assert KEY[:5] not in said
        assert KEY[-4:] not in said
        assert requests == 1


def test_short_key_is_redacted_too():
    with ModelServer([error(401, "bad: short-k3y")]) as server, pytest.raises(AuthenticationError) as caught:
        HelloAgentsLLM("m", "short-k3y", server.url, 5).think(ASKED)
    assert "bad: [key]." in str(caught.value)


def test_no_key_in_the_traceback(capsys):
    import traceback

    with ModelServer([error(401, f"bad {KEY}")]) as server:
        with pytest.raises(AuthenticationError) as caught:
            client(server).think(ASKED)
        assert KEY not in "".join(traceback.format_exception(caught.value))


def test_bad_key_told_as_a_bad_request():
    assert "LLM_API_KEY" in failure(AuthenticationError, error(400, "API key not valid."))[0]


def test_unknown_model():  # L52
    said, requests = failure(ModelNotFoundError, error(404, "The model `model-x` does not exist"))
    assert "'model-x'" in said
    assert "LLM_MODEL_ID" in said
    assert "http://127.0.0.1:" in said
    assert requests == 1
    for words in ("Model Not Exist", "Model model-x not found", "模型 model-x 不存在"):
        failure(ModelNotFoundError, error(400, words))


def test_not_found_page_hints_at_the_base_url():
    said, requests = failure(ModelNotFoundError, web_page(404))
    assert "LLM_BASE_URL" in said
    assert "/v1" in said
    assert requests == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
        (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
        (500, "the request exceeds the available context size, try increasing it"),
        (400, "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "Requested tokens (5000) exceed context window of 2048"),
        (400, "Range of input length should be [1, 30720]"),
        (400, "Your request exceeded model token limit: 8192"),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3000"),
        (400, "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens"),
        (400, "Please reduce the length of the messages"),
        (400, "请求的上下文长度超过模型限制"),
        (400, "输入内容过长，请缩短后重试"),
        (400, "Prompt 超长"),
        (400, "Invalid 'messages[12].content': string too long. Expected a string with maximum length 256000"),
        (413, "Request Entity Too Large"),
    ],
)
def test_prompt_too_long(code, words):
    with ModelServer([error(code, words)]) as server:
        with pytest.raises(ContextLengthError) as caught:
            client(server, max_tokens=5).think(ASKED, stop=OBSERVATION_STOPS)
        assert caught.value.status == code
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("'max_tokens' is too large: 9. This model's maximum context length is 8 tokens", "Lower max_tokens, or shorten"),
        ("max_tokens (9) exceeds the model's context window", "Lower max_tokens, or shorten"),
        ("max_completion_tokens is too large for the context length", "Lower max_tokens, or shorten"),
        ("prompt is too long: 208310 tokens > 200000 maximum", "maximum. Shorten"),
    ],
)
def test_room_asked_for_the_reply_is_named_where_it_makes_a_prompt_too_long(words, advice):
    assert f"{advice} the prompt." in failure(ContextLengthError, error(400, words))[0]
    assert f"{advice} the prompt." in failure(ContextLengthError, {"error": {"message": words}})[0]


def test_prompt_too_long_told_by_its_code():
    for code in ("context_length_exceeded", "exceed_context_size_error"):
        failure(ContextLengthError, error(400, "no", code=code))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "This model does not support tools"),
        (400, "registry: model-x does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice'),
        (400, "Function calling is not enabled"),
        (500, "tools param requires --jinja flag"),
        (501, "tool calling not implemented"),
        (400, "该模型不支持工具调用"),
        (422, "body.tools: Extra inputs are not permitted"),
        (400, "Unrecognized request argument supplied: tools"),
        (400, "This model doesn't support tools"),
        (400, "This model does not support tool use"),
        (404, "No endpoints found that support tool use"),
        (400, "Model foo isn't able to use tools"),
        (400, "Tool calling is disabled for this model"),
        (400, "Tool use is unavailable for this model"),
        (400, "tools can't be used with this model"),
        (400, "Function calling cannot be used with this model"),
        (400, "模型暂未支持 function call"),
        (400, "该模型无法使用工具"),
        (400, "当前模型不支持tools参数"),
        (400, "tools参数暂不支持"),
        (400, "Tool use is not currently supported for this model"),
        (400, "The model does not have tool calling capability"),
        (400, "Model foo is not capable of function calling"),
        (400, "this model lacks tool support"),
        (400, "Additional properties are not allowed ('tools', 'tool_choice' were unexpected)"),
        (400, "tools: unknown field"),
        (400, "该模型不具备工具调用能力"),
        (400, "tools 参数不被支持"),
        (400, "此模型没有工具调用功能"),
    ],
)
def test_model_without_tools(code, words):  # N15
    asked = {"tools": [{"type": "function"}]}
    said, requests = failure(ModelStatusError, error(code, words), **asked)
    assert "text agent" in said
    assert "without --agent tools" in said
    assert requests == 1
    for sent in ({"error": {"message": words}}, events({"error": {"message": words, "code": code}})):
        assert "text agent" in failure(BadReplyError, sent, **asked)[0]
        assert "text agent" not in failure(BadReplyError, sent)[0]


@pytest.mark.parametrize(
    "words",
    [
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "An assistant message with 'tool_calls' must be followed by tool messages; call_1 did not have one",
        "Invalid 'tools[0].function.name': string does not match pattern",
        "tools.0.function.parameters: 'oneOf' is not supported",
        "函数名称不能包含空格",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40",
        "Invalid request: 'tools[0].function.description': string too long",
        "messages.12.tool_calls.0.function.name: not allowed",
        "Unexpected role 'user' after role 'tool'",
        "Invalid schema for function 'length': In context=(), 'required' is required to be supplied",
        "Function name 'length' is not allowed",
        "tool 'length' is not supported",
        "parallel tool calls are not supported",
        "tool_choice参数不支持auto",
        "不支持tool_choice参数",
        "不支持parallel_tool_calls",
        "没有与 tool_call_id 对应的工具消息",
        "messages: call_1 does not have a tool result",
        "Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'",
    ],
)
def test_other_complaints_about_tools_do_not_advise_another_agent(words):
    assert "text agent" not in failure(ModelStatusError, error(400, words), tools=[{"type": "function"}])[0]


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "Streaming is not supported when tools are given"),
        error(500, "Cannot use tools with stream"),
        error(400, "This model doesn't support tool use in streaming mode."),
        {"error": {"message": "Tools are only available when stream is false"}},
        error(400, "工具调用不支持stream模式"),
        error(400, "函数调用仅支持非流式输出"),
    ],
)
def test_a_server_that_does_not_stream_with_tools_is_asked_without(refusal):
    with ModelServer([refusal, GOOD, GOOD]) as server:
        llm = client(server)
        for _ in range(2):
            assert llm.think(ASKED, tools=[{"type": "function"}]).text == GOOD
        assert [body.get("stream") for body in server.bodies] == [True, None, None]
        assert llm.naps == []


# --- parameters that a server refuses ---


def dropped(parameter, words, code=400, stop=(), **options):
    """The bodies of three requests: one refused, one without the parameter, one of the next call."""
    with ModelServer([error(code, words), GOOD, GOOD]) as server:
        llm = client(server, **options)
        notice, *_, reply = llm.stream(ASKED, stop=stop)
        assert isinstance(notice, Notice)
        assert parameter in notice.text
        assert reply.text == GOOD
        assert llm.think(ASKED, stop=stop).text == GOOD
        first, second, third = server.bodies
        assert parameter in first
        assert parameter not in second
        assert second == third
        assert llm.naps == []
        return first, second


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("temperature", "temperature unsupported"),
        (
            "temperature",
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is.",
        ),
        ("temperature", "Temperature must be greater than 0"),
        ("stop", "stop unsupported"),
        ("stop", "Unrecognized request argument supplied: stop"),
        ("stop", 'json: unknown field "stop"'),
        ("stream_options", "stream_options is only allowed when stream is set"),
        ("max_tokens", "max_tokens is too large: 9. This model supports at most 4 completion tokens"),
        ("seed", "property 'seed' is unsupported"),
        ("enableThinking", "unknown parameter enableThinking"),
        ("temperature", "temperature参数不合法"),
        ("stop", "该模型不支持stop参数"),
        ("stream_options", "不支持stream_options参数"),
    ],
)
def test_refused_parameter_is_dropped_and_remembered(parameter, words):  # L33, L34
    first, second = dropped(
        parameter,
        words,
        stop=OBSERVATION_STOPS,
        max_tokens=9,
        extra_body={"seed": 1, "enableThinking": False},
    )
    assert {**first, parameter: 0} == {**second, parameter: 0}


def test_refused_parameter_told_by_other_fields():
    with ModelServer(
        [
            error(400, "unsupported_value", param="temperature"),
            status(422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}),
            GOOD,
        ]
    ) as server:
        client(server, extra_body={"seed": 1}).think(ASKED)
        assert not {"temperature", "seed"} & set(server.bodies[-1])


def test_refused_stop_is_still_cut_here():  # L34
    with ModelServer([refuses("stop", then=FAKE)] * 2) as server:
        assert client(server).think(ASKED, stop=OBSERVATION_STOPS).text == CUT


def test_max_tokens_is_renamed_and_remembered():  # L35
    with ModelServer(
        [
            error(
                400,
                "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
                param="max_tokens",
            ),
            GOOD,
            GOOD,
        ]
    ) as server:
        llm = client(server, max_tokens=9)
        llm.think(ASKED)
        llm.think(ASKED)
        assert [body.get("max_tokens") for body in server.bodies] == [9, None, None]
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 9, 9]


def test_renamed_parameter_refused_too():
    with ModelServer(
        [error(400, "use max_completion_tokens"), error(400, "max_completion_tokens unsupported"), GOOD]
    ) as server:
        client(server, max_tokens=9).think(ASKED)
        assert not {"max_tokens", "max_completion_tokens"} & set(server.bodies[-1])


@pytest.mark.parametrize(
    "words", ["Streaming is not supported", "Your organization must be verified to stream this model."]
)
def test_refused_stream(words):
    assert "stream_options" not in dropped("stream", words)[1]


def test_each_refused_parameter_costs_one_request():
    said, requests = failure(
        ModelStatusError,
        *[error(400, "stop, temperature, stream_options unsupported")] * 9,
        stop=OBSERVATION_STOPS,
    )
    assert "unsupported" in said
    assert requests == 4


def test_model_and_messages_are_never_dropped():
    assert (
        failure(ModelStatusError, error(400, "model is odd, messages are odd, tools too"), tools=[{}])[1] == 1
    )


# --- native tool calls ---


def calls(*fragment_lists):
    told = [chunk(tool_calls=fragments) for fragments in fragment_lists]
    return reply_to(events(*told, chunk(finish="tool_calls"), DONE)).tool_calls


def test_fragments_interleaved_by_index():  # N01, N02
    assert calls(
        [call(0, "a", "Add", '{"x"')],
        [call(1, "b", "Mul", "")],
        [call(1, None, None, '{"y": 2}')],
        [call(0, None, None, ": 1}")],
        [call(1, "", "", "")],
    ) == (ToolCall("a", "Add", '{"x": 1}'), ToolCall("b", "Mul", '{"y": 2}'))
    assert [one.name for one in calls([call(1, "b", "B", "{}")], [call(0, "a", "A", "{}")])] == ["A", "B"]


def test_fragments_without_index():  # N03
    add, mul = ToolCall("a", "Add", '{"x": 1}'), ToolCall("b", "Mul", '{"y": 2}')
    assert calls(
        [call(None, "a", "Add", '{"x"'), call(None, "b", "Mul", '{"y"')],
        [call(None, None, None, ": 1}"), call(None, None, None, ": 2}")],
    ) == (add, mul)
    assert calls(
        [call(None, "a", "Add", '{"x"')],
        [call(None, None, None, ": 1}")],
        [call(None, "b", "Mul", '{"y"')],
        [call(None, "b", None, ": 2}")],
    ) == (add, mul)
    assert calls([call(None, "a", "Add", '{"x": 1}')], [call(None, "b", "Mul", '{"y": 2}')]) == (add, mul)


@pytest.mark.parametrize(
    "fragments",
    [
        [call(None, "a", "Add", '{"x"'), call(None, "b", None, ": "), call(None, "c", None, "1}")],
        [call(0, "a", "Add", '{"x"'), call(0, "b", "Add", ": "), call(0, "c", "Add", "1}")],
        [call(0, "a", "Add", '{"x": 1}'), call(0, None, None, '{"x": 1}')],
        [call(0, "a", "Add", '{"x"'), call(0, None, None, ": 1}"), call(0, None, None, '{"x": 1}')],
    ],
    ids=["fresh ids", "fresh ids and the name", "arguments once more", "pieces, then all"],
)
def test_fragments_that_say_more_than_they_should_are_one_call(fragments):
    assert calls(*([one] for one in fragments)) == (ToolCall("a", "Add", '{"x": 1}'),)


def test_fragments_without_index_and_id():  # N03
    add, more, mul = (
        ToolCall("", name, '{"x": 1}') for name in ("Add", "Add", "Mul")
    )
    assert calls(
        [call(None, None, "Add", '{"x": 1}')],
        [call(None, "", "Add", '{"x"')],
        [call(None, None, "Add", ": 1}")],
        [call(None, None, "Mul", '{"x": 1}')],
    ) == (add, more, mul)


def test_empty_and_repeated_ids_stay_as_they_came():  # N03; the agent makes them differ
    assert [
        one.id for one in calls([call(0, "", "A", "{}"), call(1, "x", "B", "{}"), call(2, "x", "C", "{}")])
    ] == ["", "x", "x"]


def test_new_id_under_the_same_index_is_a_new_call():
    assert [one.name for one in calls([call(0, "a", "A", "{}")], [call(0, "b", "B", "{}")])] == ["A", "B"]
    assert calls([call(0, "a", "A", "{")], [call(0, "a", "A", "}")]) == (ToolCall("a", "A", "{}"),)


ONE, TWO = '{"x": 1}', '{"x": 2}'


@pytest.mark.parametrize("id", [None, "", "same"])
@pytest.mark.parametrize("index", [None, 0, 7])
@pytest.mark.parametrize("first", ["{}", "", None, {}, ONE])
def test_each_entry_of_a_whole_message_is_a_call(first, index, id):
    one, two = call(index, id, "Add", first), call(index, id, "Add", TWO)
    for entries in ([one, two], [two, one], [two, two]):
        told = reply_to(message(None, "tool_calls", tool_calls=entries)).tool_calls
        assert [made.arguments or "{}" for made in told] == [
            TWO if entry is two else first if isinstance(first, str) and first else "{}" for entry in entries
        ]


def test_a_name_in_pieces():
    wanted = (ToolCall("a", "get_weather", ONE),)
    parts = [call(0, "a", "get", ""), call(0, None, "_", ""), call(0, "", "weather", None)]
    assert calls(*[[part] for part in parts], [call(0, None, None, ONE)]) == wanted
    named = call(0, None, "get_weather", ONE[:3]), call(0, None, "get_weather", ONE[3:])
    assert calls([call(0, "a", "get_weather", "")], *[[one] for one in named]) == wanted


@pytest.mark.parametrize("id", [None, "", "same"])
@pytest.mark.parametrize("index", [None, 0])
def test_calls_that_all_carry_one_index_or_one_id(id, index):
    one, two = call(index, id, "Add", ONE), call(index, id, "Add", TWO)
    halves = [call(index, id, "Add", TWO[:4])], [call(index, None, None, TWO[4:])]
    wanted = [("Add", ONE), ("Add", TWO)]
    for fragments in ([[one], [two]], [[one, two]], [[one], *halves]):
        assert [(made.name, made.arguments) for made in calls(*fragments)] == wanted
    whole = reply_to(message(None, tool_calls=[one, two])).tool_calls
    assert [(made.name, made.arguments) for made in whole] == wanted
    other = call(index, id, "Now", "")
    assert [made.name for made in calls([other], [one])] == ["Now", "Add"]


@pytest.mark.parametrize(
    "fragments",
    [
        [call(0, "a", "Add", "{}"), call(0, None, None, ONE)],
        [call(0, "a", "Add", " {}\n"), call(0, "a", "Add", ONE)],
        [call(0, "a", "Add", ONE[:3]), call(0, None, None, ONE[3:]), call(0, "a", "Add", ONE)],
        [call(0, "a", "Add", ONE), call(0, "a", "Add", "")],
        [call(0, "a", "Add", ONE), call(0, "", "Add", "")],
        [call(0, "a", "Add", ONE[:3]), call(0, None, None, ONE[3:]), call(0, None, "Add", ONE)],
        [call(None, "a", "Add", ONE), call(None, "a", "Add", {"x": 1})],
    ],
)
def test_a_call_that_is_said_twice_is_one(fragments):
    assert calls(*[[fragment] for fragment in fragments]) == (ToolCall("a", "Add", ONE),)


@pytest.mark.parametrize("fragment", [{}, call(0, "", "", ""), call(0, None, None, None), call(0, "", "", "{}")])
def test_a_call_without_id_name_and_arguments_is_none(fragment):
    chunks = chunk("Done."), chunk(tool_calls=[fragment]), chunk(finish="stop"), DONE
    reply = reply_to(events(*chunks))
    assert (reply.text, reply.tool_calls) == ("Done.", ())


def test_what_a_server_wants_back_with_a_call_is_kept():
    extra = {"google": {"thought_signature": "c2ln"}}
    [made] = calls([{**call(0, "a", "Add", "{"), "extra_content": extra}], [call(0, None, None, "}")])
    assert made == ToolCall("a", "Add", "{}", extra)
    assert len({made}) == 1


@pytest.mark.parametrize("kind", [str, float])
def test_index_as_a_text_or_a_float(kind):
    assert calls(
        [call(kind(0), "a", "Add", '{"x"')],
        [call(kind(1), "b", "Mul", '{"y"')],
        [call(kind(0), None, None, ": 1}")],
        [call(kind(1), None, None, ": 2}")],
    ) == (ToolCall("a", "Add", '{"x": 1}'), ToolCall("b", "Mul", '{"y": 2}'))


def test_one_call_that_is_not_in_a_list():
    assert calls(call(0, "a", "A", "{"), call(0, None, None, "}")) == (ToolCall("a", "A", "{}"),)
    assert reply_to(message(None, tool_calls=call(None, "a", "A", "{}"))).tool_calls == (ToolCall("a", "A", "{}"),)


def test_function_call_of_the_old_protocol():
    told = [{"name": "A", "arguments": ""}, {"arguments": '{"x"'}, {"arguments": ": 1}"}]
    chunks = [chunk(function_call=one) for one in told]
    made = (ToolCall("", "A", '{"x": 1}'),)
    assert reply_to(events(*chunks, chunk(finish="function_call"), DONE)).tool_calls == made
    assert reply_to(message(None, function_call={"name": "A", "arguments": '{"x": 1}'})).tool_calls == made
    for junk in ({"name": "", "arguments": ""}, "x", [1]):
        assert reply_to(events(chunk("a", "stop", function_call=junk), DONE)).tool_calls == ()
    both = {"function_call": told[0], "tool_calls": [call(0, "a", "A", '{"x": 1}')]}
    assert reply_to(message(None, **both)).tool_calls == (ToolCall("a", "A", '{"x": 1}'),)


def test_arguments_nested_too_deep_for_the_decoder():
    deep = '{"x": ' + "[" * 100_000
    assert calls([call(None, None, "A", deep)], [call(None, None, "A", "]")])[0].arguments == deep + "]"


def test_long_lines_and_arguments_take_linear_time():
    started = time.process_time()
    line, size = event(chunk("x" * 60_000_000, "stop")), 16_384
    reader = Events()
    found = [one for at in range(0, len(line), size) for one in reader.feed(line[at : at + size])]
    assert len(found) == 1
    reading = ChunkReading(False)
    for number in range(20_000):
        fragment = call(0, None if number else "a", None if number else "A", "y" * 500)
        list(reading.read(b"", json.dumps(chunk(tool_calls=[fragment]))))
    assert reading.reply().tool_calls == (ToolCall("a", "A", "y" * 10_000_000),)
    assert time.process_time() - started < 10


def test_arguments_as_an_object_and_junk_fragments():
    assert calls([call(0, "a", "A", {"城": 1})], [None, "x"], [{"index": 1, "id": "b"}]) == (
        ToolCall("a", "A", '{"城": 1}'),
        ToolCall("b", "", ""),
    )


def test_calls_in_a_whole_answer_and_with_finish_reason_stop():  # N07
    reply = reply_to(message(None, tool_calls=[call(None, "a", "A", "{}"), call(None, "b", "B", "{}")]))
    assert reply == Reply(
        "",
        tool_calls=(ToolCall("a", "A", "{}"), ToolCall("b", "B", "{}")),
        usage=Usage(7, 5),
        finish_reason="stop",
    )


# --- connections and threads ---


def test_one_connection_serves_many_calls():
    with ModelServer(lambda body: GOOD) as server:
        llm = client(server)
        for _ in range(5):
            llm.think(ASKED)
        assert server.connections == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_opens_its_own_connection():
    with ModelServer(lambda body: text(body["messages"][0]["content"])) as server:
        llm = client(server)
        llm.think(ASKED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about the server's thread
            child = os.fork()
        if child == 0:
            try:
                os._exit(0 if llm.think([{"role": "user", "content": "child"}]).text == "child" else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert llm.think([{"role": "user", "content": "parent"}]).text == "parent"
        assert [request.connection for request in server.requests] == [1, 2, 1]


def test_a_hundred_threads_at_once():
    together = threading.Barrier(100, timeout=60)

    def answer(exchange, request):
        together.wait()
        text(request["messages"][0]["content"])(exchange, request)

    with ModelServer(lambda body: answer) as server:
        llm = client(server, timeout=60)
        replies = {}

        def work(number):
            replies[number] = llm.think([{"role": "user", "content": f"Action: Finish[{number}]"}]).text

        threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert replies == {number: f"Action: Finish[{number}]" for number in range(100)}


def test_closing_the_stream_early_lets_go_of_the_connection():
    with ModelServer([stalls_after(chunk("a"), chunk("b")), GOOD]) as server:
        llm = client(server)
        stream = llm.stream(ASKED)
        assert next(stream) == Token("a")
        stream.close()
        assert llm.think(ASKED).text == GOOD


def test_client_lets_go_of_its_connections_with_itself():
    with ModelServer([GOOD]) as server:
        llm = client(server)
        llm.think(ASKED)
        del llm
        gc.collect()


# --- the stand-ins, and any client ---


def test_scripted_replies_in_order():
    llm = ScriptedLLM(
        [
            "<think>hm</think>a\nObservation: x",
            Reply("b", "t", (ToolCall("1", "A", "{}"),), Usage(1, 2), "length"),
            RateLimitError("slow", 429),
        ]
    )
    assert llm.think(ASKED, stop=OBSERVATION_STOPS, temperature=1) == Reply("a", "hm", finish_reason="stop")
    items = list(llm.stream([*ASKED, *ASKED]))
    assert items == [
        Token("t", True),
        Token("b"),
        Reply("b", "t", (ToolCall("1", "A", "{}"),), Usage(1, 2), "length"),
    ]
    with pytest.raises(RateLimitError, match="slow"):
        llm.think(ASKED)
    with pytest.raises(ModelError, match="has 3 replies"):
        llm.think(ASKED)
    assert [len(messages) for messages in llm.calls] == [1, 2, 1, 1]


def test_scripted_text_comes_as_several_tokens():
    items = list(ScriptedLLM([FAKE]).stream(ASKED))
    assert len(items) > 3
    assert shown(items) == items[-1].text == FAKE


def test_scripted_between_threads():
    llm = ScriptedLLM([str(number) for number in range(50)])
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(llm.think(ASKED).text)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(seen, key=int) == [str(number) for number in range(50)]


@pytest.mark.parametrize("function", [lambda m: FAKE, lambda m: iter(FAKE), lambda m: Reply(FAKE)])
def test_function_as_a_client(function):
    assert FunctionLLM(function).think(ASKED).text == FAKE
    items = list(FunctionLLM(function).stream(ASKED, stop=OBSERVATION_STOPS))
    assert shown(items) == items[-1].text == CUT


@pytest.mark.parametrize("answer", [None, b"bytes", 4, {"a": 1}, ["a", 2], ValueError, Reply(None)])
def test_stand_in_that_gives_no_text(answer):
    for llm in (FunctionLLM(lambda m: answer), ScriptedLLM([answer])):
        with pytest.raises(BadReplyError, match="which is no text"):
            llm.think(ASKED)


class OnlyThink:
    """A reader's own client, as small as can be."""

    def __init__(self, answer):
        self.answer = answer

    def think(self, messages, temperature=0):
        self.got = messages, temperature
        return self.answer


def test_ask_a_client_that_only_thinks():
    own = OnlyThink(FAKE)
    items = list(ask(own, ASKED, stop=OBSERVATION_STOPS, timeout=3, temperature=1))
    assert shown(items) == items[-1].text == CUT
    assert own.got == (ASKED, 1)
    reply = Reply("", tool_calls=(ToolCall("1", "A", "{}"),), usage=Usage(1, 2))
    assert list(ask(OnlyThink(reply), ASKED)) == [reply]


def test_ask_respects_the_thinking_of_a_client_that_only_thinks():
    *_, reply = ask(OnlyThink("<think>a\nObservation: b</think>" + FAKE), ASKED, stop=OBSERVATION_STOPS)
    assert (reply.text, reply.thinking) == (CUT, "a\nObservation: b")


@pytest.mark.parametrize("answer", [None, "", " \n", Reply(), Reply(thinking="hm"), 4, ["text"]])
def test_ask_a_client_that_gives_no_text(answer):  # L48
    with pytest.raises(BadReplyError, match="OnlyThink"):
        list(ask(OnlyThink(answer), ASKED))


def test_ask_passes_all_options_where_any_are_taken():
    class Own:
        def stream(self, messages, **options):
            yield Token("a")
            yield Reply(str(sorted(options)))

    assert list(ask(Own(), ASKED, stop=("x",), odd=1)) == [Token("a"), Reply("['odd', 'stop']")]


def test_ask_a_stream_without_a_reply():
    class Own:
        def stream(self, messages):
            yield Token("a")

    with pytest.raises(BadReplyError, match=r"Own\.stream ended without a Reply"):
        list(ask(Own(), ASKED, stop=OBSERVATION_STOPS))


def test_typed_errors_reach_the_caller_of_ask():  # L48
    with ModelServer([error(401, "no")]) as server, pytest.raises(AuthenticationError):
        list(ask(client(server), ASKED, stop=OBSERVATION_STOPS, timeout=None))


def test_a_script_that_is_one_reply_and_messages_that_are_a_text_are_called_out():
    with pytest.raises(TypeError, match="give a list of them"):
        ScriptedLLM("Action: Finish[1]")
    with pytest.raises(TypeError, match="messages is a text"):
        ScriptedLLM(["a"]).think("hello")
    with pytest.raises(ModelError, match="The script has 0 replies"):
        ScriptedLLM([]).think([])
    script = ScriptedLLM(["a"])
    script.think([])
    with pytest.raises(ModelError, match="The script has 1 reply; one more"):
        script.think([])
