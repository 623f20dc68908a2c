"""One call as models write it, also those trained on formats that are not `Tool[input]` (chapter 04).

    Two lines   `Action: Search`, and below it `Action Input: Oslo`
    Function    `Search("Oslo")`, `Search(query="Oslo")`, `Search {"query": "Oslo"}`
    JSON        `{"action": "Search", "action_input": "Oslo"}` and its relatives, also in tags or a fence

    >>> json_calls({"name": "Search", "arguments": {"query": "Oslo"}})
    [('Search', '{"query": "Oslo"}')]

`repairs` finds the place where a call may stand; the rules here read it. What does not close is no call.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from .text import BLANKS, argument_end, closing_bracket, past, squeeze, unquote


class Part(NamedTuple):
    """A piece of a reply. `kind` is one of

    thought, preamble, observation   text that is no move
    call                             a complete call: `name` and its input in `text`
    answer                           an ending that only a label marks
    remark                           an Action line without a call; `name` is "Finish" for that word alone
    unclosed                         does not close: `name`, and in `text` what follows up to a label
    problem                          `name` is one of `parser.REASONS`
    """

    kind: str
    text: str = ""
    name: str = ""


Known = Callable[[str], "str | None"]
"""Gives the registered name for one as written, "Finish" for an ending, or None."""

MARKS = BLANKS + "*`>\"'“”•-"
_WRAP_UP = BLANKS + "*`~.。"

# --- after an action label --------------------------------------------------------------------------------

_LEAD = re.compile(r"(?:(?:```|~~~)\w{0,12}(?=\s)|[\s>*`\"'“•-]|\d{1,2}[.)、](?=\s)"
                   r"|</?(?:tool|function)_calls?>){0,20}")
HEAD = re.compile(r"[\s>*`\"'“•-]{0,20}([^\[\](){}（）【】［］:：\n]{1,120})")
_AFTER_NAME = re.compile(r"[\"'”*`]{0,4}[^\S\n]{0,8}\n?[^\S\n]{0,8}")
_COLON = re.compile(r"[:：]\s{0,8}(?=[\[{])")


def read_calls(text: str, start: int, end: int, stops: Sequence[int], argument: str | None, known: Known,
               ) -> tuple[list[Part], int]:
    """What stands in `text[start:end]` after an action label, in any form, and where it ends.

    `stops` are the places, in order, where labels begin, and the end of the text. `argument` is the text of
    an input label below, if there is one; where it was used, `end` is returned.
    """
    first = past(_LEAD, text, start, end)
    if first < end and text[first] in "{[":
        return _json_or_list(text, first, end, argument, known)
    head = HEAD.match(text, first, end)
    if head is None:
        return [Part("remark", text[start:end].strip(BLANKS))], end
    name = head[1].strip(MARKS + ".。")
    opening = past(_AFTER_NAME, text, head.end(), end)
    colon = _COLON.match(text, opening, end) if known(name) else None
    if colon:  # `Search: [Oslo]`, but not `Finish: [1] says so`
        close = closing_bracket(text, colon.end())
        opening = opening if close is None or text[close + 1:end].strip(_WRAP_UP) else colon.end()
    sign = text[opening:opening + 1] if opening < end else " "
    if sign == "[" or (sign in "【［" and (opening == head.end() or known(name))):
        return _joined_calls(text, _bracketed(text, opening, name, stops), end, known)
    if argument is not None:
        return [two_lines(text[head.end():end], name, argument, known)], end
    if sign in ":：" and is_finish(name):
        return [Part("answer", drop_residue(text[opening + 1:end]))], end
    if sign in "(（{" and known(name):
        return _joined_calls(text, function_call(text, opening, end, name), end, known)
    if is_finish(name):
        return [Part("remark", name="Finish")], end
    tool = next(filter(known, (" ".join(name.split()[:count]) for count in (1, 2, 3))), None)
    if tool:
        conflict = re.search(r"\s(?:final answer|finish)", name, re.IGNORECASE)
        return [Part("problem", tool, "conflict" if conflict else "missing_input")], end
    return [Part("remark", text[start:end].strip(BLANKS))], end


def _bracketed(text: str, opening: int, name: str, stops: Sequence[int]) -> tuple[Part, int]:
    """`Finish [42]`, `Search【Oslo】`, the bracket on the next line: blanks before it, full-width forms."""
    close = argument_end(text, opening, stops)
    if close is None:
        end = stops[bisect_right(stops, opening)]
        return Part("unclosed", text[opening + 1:end].rstrip(_WRAP_UP), name), end
    return Part("call", text[opening + 1:close].strip(BLANKS), name), close + 1


_NEXT_CALL = re.compile(r"[\s,;，；、&+|/*`.-]{0,20}((?:and(?: then)?|then|or)\b|和|然后|或者?|还是)?"
                        rf"[\s,;，；、&*`-]{{0,20}}(?:\d{{1,2}}[.)、]\s)?{HEAD.pattern}(?=[\[【({{（])",
                        re.IGNORECASE)


def _joined_calls(text: str, first: tuple[Part, int], end: int, known: Known) -> tuple[list[Part], int]:
    """`Search[a], Search("b")`: a call and others joined to it; `Search[a] or Add[1]` is an open choice.

    `first` is the call and where it ends; returned are all of them, and where the last one ends.
    """
    call, after = first
    calls = [call]
    while call.kind == "call" and known(call.name) and after < end and len(calls) < 50:
        joined = _NEXT_CALL.match(text, after, end)
        name = joined[2].strip(MARKS) if joined else ""
        if joined is None or not known(name):
            break
        if joined[1] and joined[1].casefold() in ("or", "或", "或者", "还是"):
            return [Part("problem", name="prose_action")], end
        opening = joined.end()
        call, close = (_bracketed(text, opening, name, [end]) if text[opening] in "[【"
                       else function_call(text, opening, end, name))
        if call.kind == "call":
            calls.append(call)
            after = close
    return calls, after


def _json_or_list(text: str, start: int, end: int, argument: str | None, known: Known,
                  ) -> tuple[list[Part], int]:
    """`Action: {"action": "Search"}`, `Action: [Python REPL]` with its input below, `Action: [Search[x]]`."""
    close = closing_bracket(text, start)
    if close is None:
        return [Part("unclosed")], end
    name = text[start + 1:close].strip(MARKS)
    if argument is not None and known(name):
        return [Part("call", argument, name)], end
    calls, after = json_parts(text, start, len(text))
    if any(part.kind != "thought" for part in calls):
        return calls, after
    head = HEAD.match(text, start + 1, close)
    if text[start] == "[" and head and known(head[1].strip(MARKS)):
        return read_calls(text, start + 1, close, [close], argument, known)[0], close + 1
    tool = re.split('[",:：]', name, maxsplit=1)[0].strip(MARKS)  # `{"Search": "Oslo"}`, `["Search", "Oslo"]`
    return [Part("problem", tool, "missing_input") if known(tool) else Part("call", name=name)], close + 1


_LINE_START = re.compile(r"^(?:(?:```|~~~)\w{0,12}\n)?[^\S\n]{0,8}[*`>-]{0,3}[^\S\n]?"
                         r"([A-Za-z_\u4e00-\u9fff][^\[\](){}:：\n]{0,60})\[", re.MULTILINE)


def bare_calls(text: str, start: int, end: int, known: Known) -> tuple[int, list[Part]] | None:
    """Calls of known tools that are a whole reply or the last lines of a thought, and where they begin."""
    if text.find("[", start, end) < 0:
        return None
    for match in islice(_LINE_START.finditer(text, start, end), 1000):
        name = match[1].strip(MARKS)
        if known(name):
            parts, after = _joined_calls(text, _bracketed(text, match.end() - 1, name, [end]), end, known)
            alone = start > 0 or not text[:match.start()].strip(MARKS)
            return (match.start(), parts) if alone and not text[after:end].strip(MARKS + ".。~") else None
    return None


# --- two lines, function calls ----------------------------------------------------------------------------

_FENCED_JSON = re.compile(r"(?:`|(?:```|~~~)\w{0,12}\s{0,8})(?=[{\[])")
_ENDS_FENCE = re.compile(r"\s{0,8}(?:`|```|~~~)?\s{0,8}\Z|\r?\n")


def two_lines(beside: str, name: str, argument: str, known: Known) -> Part:
    """`Action: Search`, and below it `Action Input: Oslo`.

    `beside` is what stands after the name on its line: a remark in round brackets is dropped, `Action: Search
    Final Answer:` is a conflict, all else makes it no call.
    """
    beside = beside.strip(MARKS + ".~")
    if beside in (":", "：") and not known(name):
        return Part("problem", name, "conflict")
    if beside.lstrip(":：") and beside[0] not in "(（":
        return Part("problem", name, "missing_input") if known(name) else Part("remark", f"{name} {beside}")
    again = re.match(rf"{re.escape(name)}\s{{0,8}}(?=[\[(])", argument)
    if again and closing_bracket(argument, again.end()) == len(argument) - 1:
        argument = argument[again.end() + 1:-1].strip(BLANKS)  # the call was repeated as its own input
    start = past(_FENCED_JSON, argument, 0)
    if argument[start:start + 1] in ("{", "["):
        after = decode_json(argument, start, len(argument))[1]
        # An object is its own end: a fence around it and what is said on the lines below it are no input.
        argument = argument[start:after] if after > start and _ENDS_FENCE.match(argument, after) else argument
    return whole_call(name, argument)


def whole_call(name: str, argument: str) -> Part:
    """A call with an input that no bracket ends; unclosed if that is JSON or a quotation which breaks off:
    `{"q": "Os`, `"a` (and below it `Result: b"`)."""
    start = past(_FENCED_JSON, argument, 0)
    broken = ((argument[start:start + 1] in ("{", "[") and closing_bracket(argument, start) is None)
              or (argument[:1] in ('"', "“") and not re.search('["”]', argument[1:])))
    return Part("unclosed", name=name) if broken else Part("call", argument, name)


def content(text: str, marks: str) -> str:
    """What stands after a label, without residue and without the stars that close `**Thought: look it up**`.

    `marks` are those that close the emphasis which began before the label, "" for none. They end a line.
    """
    closing = rf"\s{{0,8}}{re.escape(marks)}(?=[^\S\n]{{0,8}}(?:\n|\Z))"
    return drop_residue(re.sub(closing, "", text, count=1) if marks else text)


def drop_residue(text: str) -> str:
    """`Action Input: Oslo` and then `Observ` on a last line of its own: what a stop word left over."""
    head, line_end, last = text.rstrip(BLANKS).rpartition("\n")
    word = last.strip(BLANKS + "*#_")
    labels = ("Observation", "观察结果")
    torso = line_end and word not in ("", "O") and any(label.startswith(word) for label in labels)
    return (head if torso else text).strip(BLANKS)


_KEYWORD = re.compile(r"[A-Za-z_]\w{0,60}\s{0,8}=[^=]")


def function_call(text: str, opening: int, end: int, name: str) -> tuple[Part, int]:
    """`Search("Oslo")`, `Search(query="Oslo")`, `Search {"query": "Oslo"}`, and where it ends.

    Bare words in round brackets count only right after the name and at the end of the line: `Calculator (the
    sum)` may be a remark, `Calculator(3+4)*2` is half a call.
    """
    close = closing_bracket(text, opening)
    if close is None:
        return Part("unclosed", name=name), end
    is_object = text[opening] == "{" and (not is_finish(name) or decode_json(text, opening, end)[1] > opening)
    inner = text[opening:close + 1] if is_object else text[opening + 1:close].strip(BLANKS)
    marked = inner and (unquote(inner) != inner or _KEYWORD.match(inner) or inner[0] in "{[")
    ends_line = not text[close + 1:end].split("\n", 1)[0].strip(_WRAP_UP + ";；")
    if marked or (ends_line and not text[opening - 1].isspace()):
        return Part("call", inner, name), close + 1
    if ends_line and is_finish(name):  # a remark if an answer label follows: `Finish (see below)`
        return Part("answer", inner), close + 1
    return Part("problem", name, "missing_input"), end


# --- JSON -------------------------------------------------------------------------------------------------

_OPENS = r"(?:<(?:tool|function)_calls?>|\[TOOL_CALLS\]|(?:```|~~~)\w{0,12}(?=\s))\s{0,8}"
_START = re.compile(rf"(?:^[^\S\n]{{0,8}}|(?=[<\[][tfT]))(?:{_OPENS}){{0,2}}(?=[{{\[]\s{{0,80}}[\"'{{])",
                    re.MULTILINE)
_BETWEEN = re.compile(r"(?:[\s,;]|</?(?:tool|function)_calls?>|\[/TOOL_CALLS\]){0,40}")


def standing_json(text: str, start: int, end: int) -> tuple[int, list[Part]] | None:
    """Calls in JSON that ends the text, and where it begins: `{"action": "Search", "action_input": "Oslo"}`.

    Prose without any label in front of it may be talk about a sample; then only a tag makes it a call. After
    a tag the line must end, and prose on both sides makes it a sample again.
    """
    found = _START.search(text, start, end) if text.find("{", start, end) >= 0 else None
    if found is None:
        return None
    tagged = text[found.start():found.end()].lstrip(BLANKS)[:1] in ("<", "[")
    if not tagged and start == 0 and text[:found.start()].strip(BLANKS):
        return None
    if closing_bracket(text, found.end()) is None:
        return found.start(), [Part("unclosed")]
    calls, after = json_parts(text, found.end(), end)
    rest = text[after:end].strip(BLANKS + "`~]}")
    between = start == 0 and text[:found.start()].strip(BLANKS) and not rest.startswith("<")
    alone = not rest or (tagged and not between and text[found.end():after].rstrip(" \t").endswith("\n"))
    return (found.start(), calls) if alone and any(part.kind != "thought" for part in calls) else None


def json_parts(text: str, start: int, end: int) -> tuple[list[Part], int]:
    """The thought and the calls in the JSON values at `start`, and where they end; 50 values at most.

    A call in them may hold its own input as text, and that may break off: `"arguments": "{\\"q\\": \\"Os"`.
    """
    parts: list[Part] = []
    for _ in range(50):  # each reads a copy of the rest: see test_parsing_is_linear
        value, after = decode_json(text, start, end)
        if not isinstance(value, (dict, list)):
            break
        thought = json_thought(value)
        parts += [Part("thought", thought)] if thought and not parts else []
        parts += [Part("call", argument, name) if is_finish(name) else whole_call(name, argument)
                  for name, argument in json_calls(value)]
        start = past(_BETWEEN, text, after, end)
    return parts, start


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def decode_json(text: str, start: int, end: int) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends, or (None, start).

    Python's literals are read too, up to 4,000 signs. An object that holds a key twice is not read.
    """
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=_no_key_twice)
    try:
        value, after = decoder.raw_decode(text[start:end])
        return value, start + after
    except (ValueError, RecursionError):
        pass
    close = closing_bracket(text, start) if text[start:start + 1] in ("{", "[") else None
    if close is None or close >= end or close - start > 4000 or "\\" in text[start:close]:
        return None, start
    try:
        tree = ast.parse(text[start:close + 1], mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                _no_key_twice([(ast.dump(key), None) for key in node.keys if key])
        value = ast.literal_eval(tree)
        json.dumps(value)  # a set or bytes have no form in JSON
        return value, close + 1
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None, start


_CALLS = ("toolcalls", "toolcall", "functioncall")
_NAMES = ("action", "tool", "toolname", "name", "function", "functionname", "行动", "动作", "工具")
_INPUTS = ("actioninput", "toolinput", "arguments", "args", "parameters", "params", "input", "kwargs",
           "actionargs", "toolargs", "toolarguments", "functionargs", "functionarguments",
           "行动输入", "动作输入", "工具输入", "输入", "参数")
_ANSWERS = ("finalanswer", "answer", "最终答案", "答案")
_THOUGHTS = ("thought", "thoughts", "reasoning", "思考")


def json_calls(value: Any, depth: int = 0) -> list[tuple[str, str]]:
    """Calls in a JSON value that stands for one, as (name, input): `{"action": ..., "action_input": ...}`.

    Objects become JSON text again, null becomes empty text. An object that names only an answer is a Finish.
    """
    if depth > 4:
        return []
    if isinstance(value, list):
        calls = [json_calls(item, depth + 1) for item in value]
        return [call for found in calls for call in found] if all(calls) else []
    if not isinstance(value, dict):
        return []
    fields = {squeeze(key): field for key, field in value.items() if isinstance(key, str)}
    for key in (*_CALLS, *_NAMES):
        if fields.get(key) and isinstance(fields[key], (dict, list)):
            return json_calls(fields[key], depth + 1)
    inputs = [fields[key] for key in _INPUTS if key in fields]
    if inputs and isinstance(inputs[0], dict) and "properties" in inputs[0]:
        return []  # a tool that is described, not called
    extra = fields.keys() - {*_NAMES, *_THOUGHTS, "type", "id"}
    for key in _NAMES:
        name = fields.get(key)
        if isinstance(name, str) and name.strip():
            if inputs:
                return [(name.strip(), argument_text(inputs[0]))]
            opening = name.find("[")
            if opening > 0 and closing_bracket(name, opening) == len(name) - 1:
                return [(name[:opening].strip(), name[opening + 1:-1])]  # {"action": "Search[Oslo]"}
            if not extra:
                return [(name.strip(), "")]
            if not is_finish(name) and not means_no_action(name):
                return []  # a tool whose input stands under no key known here
    return next(([("Finish", fields[key])] for key in _ANSWERS if isinstance(fields.get(key), str)), [])


def argument_text(argument: Any) -> str:
    """A JSON argument as the text that a tool's input is."""
    if argument is None:
        return ""
    return argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)


def json_thought(value: Any) -> str:
    """The thought that came inside a JSON action, or ""."""
    first = value[0] if isinstance(value, list) and value else value
    fields = {squeeze(str(key)): field for key, field in first.items()} if isinstance(first, dict) else {}
    return next((fields[key].strip() for key in _THOUGHTS if isinstance(fields.get(key), str)), "")


def json_answer(text: str) -> str:
    """`{"answer": "Paris"}` as the argument of an ending: the text itself."""
    value, after = decode_json(text, 0, len(text)) if text.startswith("{") else (None, 0)
    if isinstance(value, dict) and after == len(text) and len(value) == 1:
        key, answer = next(iter(value.items()))
        if squeeze(str(key)) in (*_ANSWERS, "output") and isinstance(answer, str):
            return answer
    return text


# --- endings ----------------------------------------------------------------------------------------------

_FINISH = {"finish", "finalanswer", "完成", "结束"}


def is_finish(name: str) -> bool:
    """`FINISH`, `final answer`: the ending in another spelling, as a whole name."""
    return squeeze(name) in _FINISH


_BOX = re.compile(r"\A<\|begin_of_box\|>|<\|end_of_box\|>\Z")
_ANSWER_KEYWORD = re.compile(r"(?:final_)?answer\s{0,8}=\s{0,8}(?=[\"'“]|[^\n=]{0,200}\Z)", re.IGNORECASE)


def answer_text(text: str) -> str:
    """`Finish["Paris"]`, `Finish[answer="Paris"]`, `Finish[{"answer": "Paris"}]`: Paris; all else stays.
    Of GLM's `<|begin_of_box|>Paris<|end_of_box|>` the marks go, also one alone.

    Quotes, stars and backticks around nothing are an empty answer.
    """
    text = json_answer(_BOX.sub("", text.strip(BLANKS)).strip(BLANKS))
    call = re.match(r"(?i)finish ?(?=\[)", text)
    if call and closing_bracket(text, call.end()) == len(text) - 1:
        text = text[call.end() + 1:-1]  # `Final Answer: Finish[Paris]`
    keyword = _ANSWER_KEYWORD.match(text)
    value = text[keyword.end():] if keyword else ""
    if keyword and (value[:1] not in tuple("\"'“") or unquote(value) != value):
        text = value
    return unquote(text) if text.strip(BLANKS + "\"'`*“”‘’") else ""


# --- what stands for no call and no text ------------------------------------------------------------------

_NO_ACTION = re.compile(r"(?:none|null|nil|n/?a|nothing|no(?:further|more|tool|other)*(?:action|tool|call)s?"
                        r"|无|没有|不需要|无需(?:进一步)?)(?:is|are)?(?:needed|required|necessary|行动|操作|工具|调用)*")


def means_no_action(body: str) -> bool:
    """`Action: None`, `Action: no action needed`, `行动：无需行动`: ways to say that no tool is meant."""
    body = squeeze(body.strip(BLANKS + ".。*`[]()（）\"'")) if len(body) < 80 else ""
    return _NO_ACTION.fullmatch(body) is not None


_BEFORE = (r"(?:(?:the|your|an?|my|insert|enter|put|write|actual|real|final) )*"
           "(?:请|在?此处?|这里|填写|填入|写|你的|您的|最终的?)*")
_AFTER = (r"(?: here| (?:to|for) (?:the|your) (?:original |user'?s? |input )*(?:tool|action|question|query))?"
          "(?:写?在?这里)?")
_PLACEHOLDERS = {
    "answer": "answer|答案(?:内容)?|回答",
    "input": "(?:tool ?)?input|search (?:query|terms?|keywords?)|输入(?:内容)?"
             "|(?:工具|搜索|查询|检索)(?:内容|输入|关键词|词|参数)",
    "name": r"(?:tool|action|function)(?: ?name)?|name of the tool|工具(?:名称?)?"
            r"|.{0,70}(?:\bone of|其中之一)",
}
_IF_MARKED = ("query|question|arguments?|text|expression|keywords?|parameters?"
              "|查询|参数|关键词|内容|问题|表达式")
_MARKED = re.compile(r"[<{\[«]|.*(?:\byour\b|\b(?:insert|enter)\b|\bhere\Z|你的|填|这里)")


def is_placeholder(text: str, kind: str) -> bool:
    """`Finish[final answer]`, `Search[{tool_input}]`, `tool_name[...]`: the template copied, not filled in.

    `kind` is "answer", "input" or "name". A word such as `query` must be marked: `<query>`, `your query`.
    """
    text = re.sub(r"[\s_-]+", " ", text.strip(BLANKS)).casefold() if len(text) <= 80 else ""
    words = _PLACEHOLDERS[kind] + (f"|{_IF_MARKED}" if kind == "input" and _MARKED.match(text) else "")
    folder = kind == "input" and text in (".", "..", "。")
    dots = not folder and re.fullmatch(r"[.…。]+", text)
    inner = text.strip("<>{}[]()«»" + BLANKS)
    return bool(dots or re.fullmatch(f"{_BEFORE}(?:{words}){_AFTER}", inner))
