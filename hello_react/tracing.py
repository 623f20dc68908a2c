"""A run as OpenTelemetry spans, for Arize Phoenix or any other viewer: a listener of its events (chapter 06).

One span for the run, and below it one for each model call and each tool call, with the GenAI semantic
conventions and the OpenInference attributes. Texts are left out unless `record_text` asks for them, and no
key gets through. Needs the extra `otel`.
"""

from __future__ import annotations

import json as jsons
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any
from urllib.parse import urlsplit

from . import __version__, events
from .errors import MissingExtraError
from .logs import cleaner, known_name
from .parser import Action, Malformed
from .trace import plain


class OtelListener:
    """A listener that makes spans: one for each run, and in it one for each model call and each tool call.

    They carry the attributes of OpenTelemetry's GenAI conventions and of OpenInference, which Arize Phoenix
    shows. A run's span is a child of the span that is current when it starts. Where a run has no answer or a
    call fails, the status is an error and `error.type` its kind, as in `Result.status`, `Observation.error`.

    Args:
        tracer_provider: whose spans they are; None for OpenTelemetry's global one. `otlp_provider` makes one.
        llm: the model's client, which is asked for the model's name and address.
        record_text: record texts too: questions, prompts, replies, results, answers, error messages.
        secrets: keys that must not be recorded; None for those in the settings or given to a client.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """

    def __init__(self, tracer_provider: Any = None, *, llm: Any = None, record_text: bool = False,
                 secrets: Sequence[str] | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise MissingExtraError("OpenTelemetry tracing", "otel") from None
        self._api, self._tracer = trace, trace.get_tracer("hello_react", __version__, tracer_provider)
        self._record_text, self._clean, self._model = record_text, cleaner(secrets), _about(llm)
        self._run: Any = None
        self._reset(())

    def _reset(self, tools: tuple[str, ...]) -> None:
        self._tools, self._step, self._call = tools, 0, None
        self._began = self._acted = self._seen_at = 0
        self._actions: list[Action] = []
        self._seen: list[events.Observation] = []

    def __call__(self, event: events.Event) -> None:
        """Take in an event."""
        now = time.time_ns()
        if isinstance(event, events.RunStarted):
            self.close()
            self._reset(event.tools)
            self._run = self._start("invoke_agent", "hello_react", "AGENT", now, {
                "gen_ai.agent.name": "hello_react", "agent.name": "hello_react",
                **self._text(event.question, "input.value")})
        elif self._run is None:
            return  # the run's start was missed
        elif isinstance(event, events.StepStarted):
            self._end(self._call, now, "_OTHER")  # the same step is asked again, as when a prompt is too long
            self._step, self._began = event.number, now
            self._call = self._start("chat", self._model["gen_ai.request.model"], "LLM", now, {
                **self._model, **self._messages("input", event.messages)})
        elif isinstance(event, events.Token) and self._began:
            self._set(self._call, {"gen_ai.request.stream": True,
                                   "gen_ai.response.time_to_first_chunk": (now - self._began) / 1e9})
            self._began = 0
        elif isinstance(event, events.Reply):
            self._set(self._call, self._about_reply(event))
            self._end(self._call, now)
            self._call = None
        elif isinstance(event, Action):
            self._actions.append(event)
            self._acted = now
        elif isinstance(event, events.Observation) and self._actions:
            self._seen_at = self._seen_at or now
            self._seen.append(event)
            if len(self._seen) == len(self._actions):
                self._end_tools(now)
        elif isinstance(event, events.Observation) and event.error != "malformed":
            self._run.add_event("answer_refused", {}, now)
        elif isinstance(event, Malformed):
            self._run.add_event("reply_unreadable", {"reason": event.reason}, now)
        elif isinstance(event, events.Notice):
            self._run.add_event("notice", {"message": self._clean(event.text)}, now)
        elif isinstance(event, events.RunEnded):
            result = event.result
            self._set(self._run, {
                "hello_react.status": result.status, "hello_react.steps": len(result.steps),
                "gen_ai.usage.input_tokens": result.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": result.usage.completion_tokens,
                **self._text(result.answer, "output.value")})
            self._end_all(now, result.status, result.reason, failed=result.answer is None)

    def close(self) -> None:
        """End the spans of a run that was left before its end, as "cancelled"."""
        self._end_all(time.time_ns(), "cancelled", "the run was left before its end", failed=True)

    def _end_all(self, now: int, status: str, reason: str, failed: bool) -> None:
        self._end(self._call, now, status, reason)
        if status == "max_steps":
            self._actions = []  # what the model asked for when only an answer was wanted was never run
        self._end_tools(now, status)
        self._end(self._run, now, status if failed else "", reason)
        self._run = self._call = None

    def _about_reply(self, reply: events.Reply) -> dict[str, Any]:
        usage = reply.usage
        calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
                 for call in reply.tool_calls]
        message = {"role": "assistant", "content": reply.text, "reasoning_content": reply.thinking,
                   "tool_calls": calls, "finish_reason": reply.finish_reason}
        return {"gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
                "llm.token_count.prompt": usage.prompt_tokens,
                "llm.token_count.completion": usage.completion_tokens,
                "llm.token_count.total": usage.total_tokens,
                "gen_ai.response.finish_reasons": [self._clean(reply.finish_reason)],
                **self._messages("output", [message])}

    def _end_tools(self, now: int, error: str = "") -> None:
        """The spans of a step's calls: all its actions come before the first runs, all observations after."""
        end = self._seen_at or now
        # The calls ran side by side, and perhaps not at once, as an approval takes its time: they began as
        # long before their observations as the longest took.
        longest = max((seen.seconds for seen in self._seen), default=math.inf)
        start = max(self._acted, end - int(min(longest * 1e9, end)))
        for action, seen in zip_longest(self._actions, self._seen):
            name = known_name(action.tool, self._tools)
            span = self._start("execute_tool", name, "TOOL", start, {
                "gen_ai.tool.name": name, "tool.name": name, "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": action.id,
                **self._text(action.input, "gen_ai.tool.call.arguments", "input.value")})
            if seen is None:
                self._end(span, end, error)
            else:
                self._set(span, self._text(seen.text, "gen_ai.tool.call.result", "output.value"))
                self._end(span, start + int(seen.seconds * 1e9), seen.error, seen.text)
        self._actions, self._seen, self._seen_at = [], [], 0

    def _start(self, operation: str, of: str, kind: str, start: int, attributes: Mapping[str, Any]) -> Any:
        parent = self._api.set_span_in_context(self._run) if self._run else None
        span = self._tracer.start_span(
            self._clean(f"{operation} {of}".strip()), parent, start_time=start,
            kind=self._api.SpanKind.CLIENT if kind == "LLM" else self._api.SpanKind.INTERNAL,
            attributes={"gen_ai.operation.name": operation, "openinference.span.kind": kind})
        self._set(span, {"hello_react.step": self._step or None, **attributes})
        return span

    def _end(self, span: Any, now: int, error: str = "", reason: str = "") -> None:
        if span and error:
            span.set_attribute("error.type", error)
            said = self._clean(reason) if self._record_text else error
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, said))
        if span:
            span.end(now)

    def _set(self, span: Any, attributes: Mapping[str, Any]) -> None:
        """Set what is known, clean: one lone surrogate would cost the whole export."""
        for name, value in attributes.items():
            if span and value not in (None, "", [""]):
                span.set_attribute(name, self._clean(value) if isinstance(value, str) else value)

    def _text(self, text: str | None, *names: str) -> dict[str, Any]:
        return dict.fromkeys(names, text) if self._record_text else {}

    def _messages(self, way: str, messages: events.Messages) -> dict[str, Any]:
        """The messages of a model call as both conventions have them."""
        if not self._record_text:
            return {}
        clean: list[events.Message] = plain(list(messages), self._clean)
        return {**_flat(f"llm.{way}_messages", clean), f"{way}.value": clean[-1].get("content"),
                f"gen_ai.{way}.messages": jsons.dumps([_in_parts(one) for one in clean], ensure_ascii=False)}


def _about(llm: Any) -> dict[str, Any]:
    """The attributes of a model call that its client knows beforehand."""
    address, model = str(getattr(llm, "base_url", None) or ""), str(getattr(llm, "model", None) or "")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # a client of one's own may call anything its address
        host = port = None
    return {"gen_ai.request.model": model, "llm.model_name": model, "server.address": host,
            # The protocol that is spoken; whose model it is, the address tells.
            "gen_ai.provider.name": "openai" if address else "hello_react",
            "server.port": port}


def _in_parts(message: events.Message) -> dict[str, Any]:
    """A chat message in the shape of the GenAI conventions."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        parts = [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    else:
        texts = {"reasoning": message.get("reasoning_content"), "text": content}
        parts = [{"type": kind, "content": text} for kind, text in texts.items() if text]
    calls = message.get("tool_calls") or ()
    parts += [{"type": "tool_call", "id": call["id"], **call["function"]} for call in calls]
    reason = {"finish_reason": message["finish_reason"]} if "finish_reason" in message else {}
    return {"role": message["role"], "parts": parts, **reason}


def _flat(prefix: str, messages: events.Messages) -> dict[str, Any]:
    """The last messages of a chat in the shape of OpenInference, an attribute for each value.

    Not all, as a span holds 128 attributes and drops the oldest beyond that.
    """
    flat: dict[str, Any] = {}
    for number, message in enumerate(messages[-16:]):
        start = f"{prefix}.{number}.message"
        flat.update({f"{start}.{name}": message.get(name) for name in ("role", "content", "tool_call_id")})
        for place, call in enumerate(message.get("tool_calls") or ()):
            of_call = f"{start}.tool_calls.{place}.tool_call"
            flat[f"{of_call}.id"] = call["id"]
            flat.update({f"{of_call}.function.{name}": text for name, text in call["function"].items()})
    return dict(islice(flat.items(), 80))


# --- export


def otlp_provider(endpoint: str | None = None) -> Any:
    """A tracer provider that sends its spans to an OTLP/HTTP endpoint, in batches, and the rest at exit.

    An endpoint that is down never disturbs a run: one warning is logged, and the program's exit takes a few
    seconds longer at most. The variables OTEL_* hold, such as OTEL_EXPORTER_OTLP_HEADERS. The service, and
    the project in Phoenix, are called hello_react unless these say otherwise.

    Args:
        endpoint: the address, such as "http://localhost:6006" (Phoenix), with or without /v1/traces; None for
            OTEL_EXPORTER_OTLP_ENDPOINT or else http://localhost:4318.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
        ValueError: the endpoint is no http address.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtraError("OpenTelemetry tracing", "otel") from None
    if endpoint is not None:
        parts = urlsplit(endpoint.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("The OTLP endpoint must be an address such as http://localhost:4318.")
        path = parts.path.rstrip("/").removesuffix("/v1/traces")
        endpoint = parts._replace(path=f"{path}/v1/traces").geturl()
    patient = any(name.startswith("OTEL_EXPORTER_OTLP_") and name.endswith("TIMEOUT") for name in os.environ)
    sender: Any = _Sender(OTLPSpanExporter(endpoint, timeout=None if patient else 3))
    names = {"service.name": "hello_react", "openinference.project.name": "hello_react",
             **OTELResourceDetector().detect().attributes}
    provider = TracerProvider(resource=Resource.create(names))
    provider.add_span_processor(BatchSpanProcessor(sender))
    return provider


class _Sender:
    """The exporter, with one warning in place of all that it says itself."""

    def __init__(self, exporter: Any) -> None:
        self._exporter, self._warned = exporter, False
        self.shutdown, self.force_flush = exporter.shutdown, exporter.force_flush
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[Any]) -> Any:
        outcome = self._exporter.export(spans)
        if outcome.name != "SUCCESS" and not self._warned:
            self._warned = True
            told = "%d spans could not be sent: is an OTLP endpoint there?"
            logging.getLogger(__name__).warning(told, len(spans))
        return outcome
