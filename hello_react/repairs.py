"""Small named rules that bring what models really write into the documented format (chapter 04 builds the first ones).

1. `TEXT_RULES` take out what is not part of the reply: thinking, template tokens, a fence around it all.
2. `LABEL` finds labels in any case, numbered, bold, with either colon, English or Chinese.
3. `parts` reads what stands after them; `dialects` has the calls that are not written `Tool[input]`.

    >>> [part.kind for part in parts("**Thought 1:** look\\n**Action 1:** search [Oslo]", lambda name: "Search")]
    ['thought', 'call']

Each rule's docstring shows the failure that it mends. All are pure and run in linear time: every quantifier over
a run of signs is bounded, and text is scanned for a closing bracket once for each call that is read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from .dialects import (Known, Part, drop_residue, function_call, json_answer, json_parts, standing_json,
                       two_lines)
from .dialects import decode_json as decode_json
from .dialects import json_calls as json_calls
from .text import BLANKS, FENCE, argument_end, closing_bracket, outside_fences, unquote
from .text import squeeze as squeeze

# --- labels ---------------------------------------------------------------------------------------------------

_WORDS = {
    "input": "(?:action|tool)[ _]?input|(?:行动|动作|操作|工具|行動|動作)[输輸]入",
    "short_input": "input|[输輸]入",
    "answer": "(?:final[ _])?answer|最[终終](?:答案|回答)|答案|回答",
    "thought": "thoughts?|思考(?:过程)?|想法",
    "other": "action[ _][a-z]{1,20}",
    "action": "action|[行][动動]|[动動]作|操作",
    "observation": "(?:observations?|[观觀]察(?:[结結]果)?)(?: ?[(（][^()（）\\n]{1,40}[)）])?",
    "question": "question|问题|human|user|用户",
    "result": "(?:tool |function |search )?(?:results?|outputs?|responses?)|(?:工具)?(?:返回|输出|执行|搜索|查询)?结果|(?:工具)?(?:输出|返回)",
}
_WORD = "|".join(f"(?P<{kind}>{words})" for kind, words in _WORDS.items())
_SAME_WORD = "|".join(_WORDS.values())
_GAP = r"[^\S\n]{0,8}"
_NUMBER = r"[#(（\[-]?(?:\d{1,4}|[一二三四五六七八九十①-⑩])[)）\]]?"

LABEL = re.compile(
    # The look-ahead lets a line that can't be a label fail at its first letter: see test_parsing_is_linear.
    rf"^[^\S\n]{{0,40}}(?:[(（]?\d{{1,3}}[.)、）])?[{BLANKS.replace(chr(10), '')}>#*_`•\u2600-\u27bf\ufe0f"
    rf"\U0001f300-\U0001faff-]{{0,12}}[\[【(（<]?(?=[afhioqrstu行动動操工输輸最答回思想观觀问用返执搜查结])(?:"
    rf"(?:{_WORD}){_GAP}(?:{_NUMBER})?{_GAP}[\]】)）>*_`]{{0,4}}{_GAP}[:：]"
    rf"|(?:(?<=\#)|(?<=\#[ ])|(?<=\*\*))(?P<heading>{_SAME_WORD})(?:{_GAP}{_NUMBER})?\**{_GAP}$"
    rf"|(?<=【)(?P<boxed>{_SAME_WORD})】"
    rf"|(?P<lone>{_WORDS['observation']}){_GAP}$)",
    re.MULTILINE | re.IGNORECASE,
)
"""A label at the start of a line: `**Action 2:**`, `- Thought:`, `行动：`, `【行动】`, a heading that is only the word.

The word `Observation` on a line of its own counts as a "result", which is a label after an action only.
"""

_KINDS = [(kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS.items()]


def label_kind(match: re.Match[str]) -> str:
    """The kind of a `LABEL` match: one of the keys of the word table."""
    if match["lone"]:
        return "result"
    word = match["heading"] or match["boxed"]
    return next(kind for kind, words in _KINDS if words.fullmatch(word)) if word else str(match.lastgroup)


# --- rules on the whole text ----------------------------------------------------------------------------------

_THINK = re.compile(r"<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINK_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def drop_thinking(text: str) -> str:
    """`<think>Maybe Action: Delete[all]? No.</think>` before the reply: private drafts must not run.

    Also with the opening tag missing, as some templates write it themselves. A tag inside an argument is content.
    """
    start = 0
    while opening := _THINK.match(text, _skip_blanks(text, start)):
        closing = _THINK_END.search(text, opening.end())
        if closing is None:
            return text[start:]
        start = closing.end()
    closing = _THINK_END.search(text, start)
    return text[closing.end():] if closing and _ends_a_draft(text, start, closing) else text[start:]


def _skip_blanks(text: str, start: int) -> int:
    return len(text) - len(text[start:].lstrip(BLANKS))


def _ends_a_draft(text: str, start: int, closing: re.Match[str]) -> bool:
    after = text[closing.end():closing.end() + 80].lstrip(" \t\r")
    return (not after or after[0] == "\n" or bool(LABEL.match(after))) and not _in_call(text, start, closing.start())


def _in_call(text: str, start: int, position: int) -> bool:
    """Whether the last action label of `text[start:position]` begins a call that is still open at `position`."""
    actions = [label for label in LABEL.finditer(text, start, position) if label_kind(label) == "action"]
    bracket = text.find("[", actions[-1].end(), position) if actions else -1
    end = closing_bracket(text, bracket) if bracket >= 0 else None
    return bracket >= 0 and (end is None or end > position)


_TOKEN = (r"<\|[\w./-]{1,40}\|>|<｜[\w▁]{1,40}｜>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<eos>|<bos>"
          r"|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>")
_LEADING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+(?:assistant\b|model\b)?", re.IGNORECASE)
_TRAILING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+\s*\Z", re.IGNORECASE)
_TURN_END = re.compile(r"(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<｜end▁of▁sentence｜>|</s>|<end_of_turn>)"
                       r"[^\S\n]{0,8}(?=\n|<[|｜])", re.IGNORECASE)


def drop_template_tokens(text: str) -> str:
    """`Action: Search[Oslo]<|im_end|>`: tokens of the chat template at either end, and whatever follows an end of turn."""
    leading = _LEADING_TOKENS.match(text)
    text = text[leading.end():] if leading else text
    ended = _TURN_END.search(text)
    text = text[:ended.start()] if ended and not _in_call(text, 0, ended.start()) else text
    trailing = _TRAILING_TOKENS.search(text, max(0, len(text) - 400))
    return text[:trailing.start()] if trailing else text


_ROLE = re.compile(r"\s{0,8}(?:assistant|ai|助手)\s{0,8}[:：]\s{0,8}(?=\S)", re.IGNORECASE)


def drop_role_word(text: str) -> str:
    """`Assistant: Thought: look`: the role's name in front of the first label."""
    role = _ROLE.match(text)
    return text[role.end():] if role and LABEL.match(text[role.end():role.end() + 200]) else text


def unwrap_fence(text: str) -> str:
    """The whole reply inside one code fence (also one that was not closed): the fence is not content."""
    text = text.strip(BLANKS)
    fences = list(islice(FENCE.finditer(text), 3))
    if fences and fences[0].start() == 0 and LABEL.match(text[fences[0].end():].lstrip(BLANKS)):
        if len(fences) == 1:
            return text[fences[0].end():]
        if len(fences) == 2 and fences[1].end() == len(text):
            return text[fences[0].end():fences[1].start()]
    return text


TEXT_RULES: tuple[Callable[[str], str], ...] = (drop_thinking, drop_template_tokens, unwrap_fence, drop_role_word)

# --- names, answers, placeholders -----------------------------------------------------------------------------

_FINISH = {"finish", "finalanswer", "完成", "结束"}


def is_finish(name: str) -> bool:
    """`FINISH`, `final answer`: the ending in another spelling, as a whole name."""
    return squeeze(name) in _FINISH


_NO_ACTION = re.compile(r"(?:none|null|nil|n/?a|nothing|no(?:further|more|tool|other)*(?:action|tool|call)s?|-+|无|没有|不需要|无需"
                        r"(?:进一步)?)(?:is|are)?(?:needed|required|necessary|行动|操作|工具|调用)*")


def means_no_action(body: str) -> bool:
    """`Action: None`, `Action: no action needed`, `行动：无需行动`: ways to say that no tool is meant."""
    body = squeeze(body.strip(BLANKS + ".。*`[]()（）\"'")) if len(body) < 80 else ""
    return _NO_ACTION.fullmatch(body) is not None


_ANSWER_KEYWORD = re.compile(r"(?:final_)?answer\s{0,8}=\s{0,8}(?=[\"'“]|[^\n=]{0,200}\Z)", re.IGNORECASE)


def answer_text(text: str) -> str:
    """`Finish["Paris"]`, `Finish[answer="Paris"]`, `Finish[{"answer": "Paris"}]`: Paris. Nothing else is unwrapped.

    Quotes, stars and backticks around nothing are an empty answer.
    """
    text = json_answer(text.strip(BLANKS))
    call = re.match(r"(?i)finish ?(?=\[)", text)
    if call and closing_bracket(text, call.end()) == len(text) - 1:
        text = text[call.end() + 1:-1]  # `Final Answer: Finish[Paris]`
    keyword = _ANSWER_KEYWORD.match(text)
    value = text[keyword.end():] if keyword else ""
    if keyword and (value[:1] not in tuple("\"'“") or unquote(value) != value):
        text = value
    return unquote(text) if text.strip(BLANKS + "\"'`*“”‘’") else ""


_LEAD_WORDS = r"(?:(?:the|your|an?|my|insert|enter|put|write|actual|real|final) )*(?:请|在?此处?|这里|填写|填入|写|你的|您的|最终的?)*"
_TAIL_WORDS = (r"(?: here| (?:to|for) (?:the|your) (?:original |user'?s? |input )*(?:tool|action|question|query))?"
               r"(?:写?在?这里)?")
_PLACEHOLDERS = {
    "answer": "answer|答案(?:内容)?|回答",
    "input": "(?:tool ?)?input|search (?:query|terms?|keywords?)|(?:工具|搜索|查询|检索)(?:内容|输入|关键词|词|参数)|输入(?:内容)?",
    "marked input": "query|question|arguments?|text|expression|keywords?|parameters?|查询|参数|关键词|内容|问题|表达式",
    "name": "(?:tool|action|function)(?: ?name)?|name of the tool|工具(?:名称?)?|.{0,70}(?:\\bone of|其中之一)",
}


def is_placeholder(text: str, kind: str) -> bool:
    """`Finish[final answer]`, `Search[{tool_input}]`, `tool_name[...]`: the template copied instead of filled in.

    `kind` is "answer", "input" or "name". A word such as `query` must be marked: `<query>`, `your query here`.
    """
    text = text.strip(BLANKS)
    if len(text) > 80:
        return False
    inner = re.sub(r"[\s_-]+", " ", text.strip("<>{}[]()«»" + BLANKS)).casefold()
    marked = text[:1] in tuple("<{[«") or re.search(r"\byour\b|\b(?:insert|enter)\b|\bhere$|你的|填|这里", inner)
    words = _PLACEHOLDERS[kind] + (f"|{_PLACEHOLDERS['marked input']}" if kind == "input" and marked else "")
    return (kind != "name" and re.fullmatch(r"[.…。]+", text) is not None
            or re.fullmatch(f"{_LEAD_WORDS}(?:{words}){_TAIL_WORDS}", inner) is not None)


_NOT_MEANT = re.compile(r"(?i)\b(?:not|never|no|avoid|without|cannot|would|could|might|example|e\.g)\b|n't\b|[不别勿莫]|没有|避免|"
                        r"例如|比如|示例")


def is_sentence(name: str, tools: Sequence[str] | None) -> bool:
    """`Do not call Delete[all]`, `不要调用 Delete[all]`, `use Search[Oslo]`: words where a tool's name should stand."""
    name = re.split(r"[(（\[{]", name)[0].strip(BLANKS)
    words = re.findall(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+", name)
    return (len(name.split()) > 3 or len(words) > 6 or len(words) > 1 and _NOT_MEANT.search(name) is not None
            or any(re.search(rf"[\s\u3400-\u9fff]{re.escape(tool)}\s*\Z", name) for tool in (*(tools or ()), "Finish")))


# --- the parts of a reply ---------------------------------------------------------------------------------------

class _Label(NamedTuple):
    kind: str
    start: int
    end: int


def parts(text: str, known: Known, cut: bool = False) -> Iterator[Part]:
    """The parts of a reply, read with all the rules of this module.

    `known` gives the registered name for one as written, or None; `cut` says that the token limit ended the reply.
    """
    for rule in TEXT_RULES:
        text = rule(text)
    if _THINK.match(text, _skip_blanks(text, 0)):
        yield Part("problem", name="unclosed")  # cut while it was still thinking
    else:
        yield from _labelled(text, known, cut)


def _labelled(text: str, known: Known, cut: bool) -> Iterator[Part]:
    labels = _labels(text)
    if not any(label.kind in ("action", "answer") for label in labels):
        labels = sorted([*labels, *_midline_action(text, known)], key=lambda label: label.start)
    stops = [*(label.start for label in labels), len(text)]
    kinds = [*(label.kind for label in labels), ""]
    yield from _unlabelled("preamble", text, 0, stops[0], kinds[0], known, cut)
    read_to = 0
    for index, label in enumerate(labels):
        if label.start < read_to:
            continue  # this label stands inside an argument, or was read with the call before it
        end = stops[index + 1]
        if label.kind == "thought":
            yield from _unlabelled("thought", text, label.end, end, kinds[index + 1], known, cut)
        elif label.kind == "answer":
            yield Part("answer", _unbold(drop_residue(text[label.end:end])))
        elif label.kind == "observation":
            yield Part("observation")
        elif label.kind == "action":
            found, read_to = _action(text, labels, index, stops, known, cut)
            yield from found
        else:
            yield Part("thought")  # `Question:`, `Action Reason:`, an input without an action


_CLOSING_MARKS = re.compile(r"[*`]{0,3}")


def _labels(text: str) -> list[_Label]:
    """All labels outside code fences, each with the meaning that its place gives it.

    `Result:` and `User:` are an invention if they follow a call, and text elsewhere; `Input:` belongs to a call only.
    In an answer (`Final Answer: ... Input: x`) only the labels of a next step end it.
    """
    labels: list[_Label] = []
    matches = list(islice(outside_fences(text, LABEL.finditer(text)), 10_000))
    kinds = [*map(label_kind, matches), ""]
    for match, kind, following in zip(matches, kinds, kinds[1:]):
        before = labels[-1] if labels else _Label("", 0, 0)
        calling = before.kind in ("action", "input", "other")
        if kind in ("question", "result") and calling:
            kind = "observation"
        elif kind == "short_input" and calling:
            kind = "input"
        elif kind in ("result", "short_input") or kind == "question" and labels and following != "thought":
            continue
        elif before.kind == "answer" and kind in ("input", "other", "answer"):
            if kind != "answer" or text[before.end:match.start()].strip(BLANKS):
                continue
            labels.pop()  # `Final Answer:` and below it `Answer: Paris`
        end = match.end()
        if "*" in match[0] or "`" in match[0]:  # `**Action:**`, but not `Action Input:**/*.py`
            end = _CLOSING_MARKS.match(text, end).end()
        labels.append(_Label(kind, match.start(), end))
    return labels


_MIDLINE_ACTION = re.compile(rf"(?<=[ \t\u00a0\u3000.。!！?？;；,，])[*`]{{0,3}}(?:action|行动|动作)[*`]{{0,3}}{_GAP}[:：][*`]{{0,3}}",
                             re.IGNORECASE)


def _midline_action(text: str, known: Known) -> list[_Label]:
    """`Thought: I need it. Action: Search[x]` on one line: only with a known tool's complete call that ends the line."""
    tries = 5  # each may scan the whole text: see test_parsing_is_linear
    for match in _MIDLINE_ACTION.finditer(text) if not FENCE.search(text) else ():
        head = _HEAD.match(text, match.end())
        if head is None or text[head.end():head.end() + 1] != "[" or not known(head[1].strip(_MARKS)):
            continue
        tries -= 1
        close = closing_bracket(text, head.end()) if tries >= 0 else None
        if close is None:
            break
        line = text[close + 1:close + 200].split("\n", 1)[0].strip(_MARKS + ".。")
        if (not line or LABEL.match(line)) and _meant(text, match.start()):
            return [_Label("action", match.start(), match.end())]
    return []


def _meant(text: str, position: int) -> bool:
    """Whether the sentence that leads up to a call without a label of its own says nothing against it."""
    before = text[max(0, position - 300):position].rstrip(_MARKS + "~")
    return not _NOT_MEANT.search(re.split(r"[.!?。！？\n]", before)[-1])


def _unlabelled(kind: str, text: str, start: int, end: int, following: str, known: Known, cut: bool) -> Iterator[Part]:
    """A thought or preamble, and the call that it ends in if no step follows: `Thought: look`, then `Search[Oslo]`."""
    found = None
    if following in ("", "observation"):
        found = (standing_json(text, start, end) or _bare_call(text, start, end, known)
                 or _bare_fence(text, start, end, known, cut))
    at, calls = found if found and _meant(text, found[0]) else (end, [])
    body = _unbold(text[start:at].strip(BLANKS))
    yield from [Part(kind, body)] if body or kind == "thought" else []
    yield from calls


def _unbold(text: str) -> str:
    """`**Thought: look it up**`: bold around the whole line, which the label took the opening stars of."""
    return text[:-2].rstrip(BLANKS) if text.endswith("**") and text.count("**") % 2 else text


_LINE_START = re.compile(r"^[^\S\n]{0,8}[*`>-]{0,3}[^\S\n]?([A-Za-z_\u4e00-\u9fff][^\[\](){}:：\n]{0,60})\[", re.MULTILINE)


def _bare_call(text: str, start: int, end: int, known: Known) -> tuple[int, list[Part]] | None:
    """The whole reply or the last lines of a thought are complete calls of known tools: `Search[Mate 70 price]`."""
    for match in islice(_LINE_START.finditer(text, start, end), 1000):
        name = match[1].strip(_MARKS)
        if known(name):
            part, after = _bracketed(text, match.end() - 1, name, [end])
            further, after = _further_calls(text, after, end, known) if part.kind == "call" else ([], after)
            alone = start > 0 or not text[:match.start()].strip(_MARKS)
            if alone and further is not None and not text[after:end].strip(_MARKS + ".。~"):
                return match.start(), [part, *further]
            break
    return None


def _bare_fence(text: str, start: int, end: int, known: Known, cut: bool) -> tuple[int, list[Part]] | None:
    """`Thought: look`, then a code fence that holds the labelled call alone and ends the reply."""
    fences = list(FENCE.finditer(text, start, end)) if start else []
    opening = fences[-2 + len(fences) % 2] if fences else None
    closing = fences[-1] if len(fences) % 2 == 0 and fences else None
    if opening is None or closing and text[closing.end():end].strip(BLANKS):
        return None
    inner = text[opening.end():closing.start() if closing else end].strip(BLANKS)
    label = LABEL.match(inner)
    called = label is not None and label_kind(label) == "action"
    return (opening.start(), list(_labelled(inner, known, cut))) if called else None


# --- calls --------------------------------------------------------------------------------------------------------

_MARKS = BLANKS + "*`>\"'“”•-"
_LEAD = re.compile(r"(?:(?:```|~~~)\w{0,12}(?=\s)|[\s>*`\"'“•-]|\d{1,2}[.)、](?=\s)|</?(?:tool|function)_calls?>){0,20}")
_HEAD = re.compile(r"[\s>*`\"'“•-]{0,20}([^\[\](){}（）【】［］:：\n]{1,120})")
_AFTER_NAME = re.compile(r"[\"'”*`]{0,4}[^\S\n]{0,8}\n?[^\S\n]{0,8}")
_WRAP_UP = BLANKS + "*`~.。"


def _action(text: str, labels: list[_Label], index: int, stops: list[int], known: Known, cut: bool,
            ) -> tuple[list[Part], int]:
    """The parts of an action and where reading goes on. An argument in brackets may run over labels."""
    start, end, argument = labels[index].end, stops[index + 1], None
    below = index + 1
    while below < len(labels) and labels[below].kind == "other":  # `Action Reason:` between the action and its input
        below += 1
    if below < len(labels) and labels[below].kind == "input":
        argument = drop_residue(text[labels[below].end:stops[below + 1]])
    found, read_to = _call(text, start, end, stops, argument, known)
    if argument is None or found[0].kind == "unclosed":
        return found, read_to
    if read_to > stops[below]:
        return found, read_to  # the label stands inside the argument
    twice = below + 1 < len(labels) and labels[below + 1].kind == "input"
    if (twice or read_to < end) and found[0].kind == "call" and known(found[0].name):
        return [Part("problem", "input", "conflict")], read_to
    if cut and stops[below + 1] == len(text):
        found = [Part("unclosed", name=found[0].name)]
    return found, stops[below + 1]


def _call(text: str, start: int, end: int, stops: list[int], argument: str | None, known: Known,
          ) -> tuple[list[Part], int]:
    """The calls in `text[start:end]`, in whatever form, and where they end; `end` if `argument` was their input."""
    body = text[start:end].strip(BLANKS)
    first = _LEAD.match(text, start, end).end()
    if text[first:first + 1] in ("{", "[") and first < end:
        return _json_or_list(text, first, end, stops, argument, known)
    head = _HEAD.match(text, first, end)
    if head is None:
        return [Part("remark", body)], end
    name = head[1].strip(_MARKS + ".。")
    opening = _AFTER_NAME.match(text, head.end(), end).end()
    colon = re.compile(r"[:：]\s{0,8}(?=[\[{])").match(text, opening, end)
    if colon and (known(name) or is_finish(name)):
        close = closing_bracket(text, colon.end())  # `Search: [Oslo]`, but not `Finish: [1] says so`
        opening = colon.end() if close is not None and not text[close + 1:end].strip(_WRAP_UP) else opening
    sign = text[opening:min(opening + 1, end)]
    if sign and sign in "[【［" and (sign == "[" or opening == head.end() or known(name)):
        call, after = _bracketed(text, opening, name, stops)
        further, after = _further_calls(text, after, end, known) if call.kind == "call" and known(name) else ([], after)
        return ([call, *further], after) if further is not None else ([Part("problem", name="prose_action")], end)
    if argument is not None:
        return [two_lines(text[head.end():end], name, argument, known)], end
    if is_finish(name) and sign in (":", "："):
        return [Part("answer", drop_residue(text[opening + 1:end]))], end
    if sign and sign in "(（{" and known(name):
        call, after = function_call(text, opening, end, name,
                                    touching=is_finish(name) or not text[opening - 1].isspace())
        return [call], after
    if is_finish(name):
        return [Part("remark", name="Finish")], end
    if any(known(" ".join(name.split()[:count])) for count in (1, 2, 3)):
        conflict = re.search(r"\s(?:final answer|finish)", name, re.IGNORECASE)
        return [Part("problem", name, "conflict" if conflict else "missing_input")], end
    return [Part("remark", body)], end


def _bracketed(text: str, opening: int, name: str, stops: Sequence[int]) -> tuple[Part, int]:
    """`Finish [42]`, `Search【Oslo】`, the bracket on the next line: blanks before it and full-width forms."""
    close = argument_end(text, opening, stops)
    if close is None:
        end = stops[bisect_right(stops, opening)]
        return Part("unclosed", text[opening + 1:end].rstrip(_WRAP_UP), name), end
    return Part("call", text[opening + 1:close].strip(BLANKS), name), close + 1


def _json_or_list(text: str, start: int, end: int, stops: list[int], argument: str | None, known: Known,
                  ) -> tuple[list[Part], int]:
    """`Action: {"action": "Search", ...}`; `Action: [Python REPL]` with the input below; `Action: [Search[Oslo]]`."""
    close = closing_bracket(text, start)
    if close is None:
        return [Part("unclosed")], end
    name = text[start + 1:close].strip(_MARKS)
    if argument is not None and known(name):
        return [Part("call", argument, name)], end
    calls, after = json_parts(text, start, len(text))
    if any(part.kind == "call" for part in calls):
        return calls, after
    head = _HEAD.match(text, start + 1, close)
    if text[start] == "[" and head and known(head[1].strip(_MARKS)):
        return _call(text, start + 1, close, [close], argument, known)[0], close + 1
    return [Part("call", name=name)], close + 1


_JOINT = re.compile(r"[\s,;，；、&*`.-]{0,20}(and(?: then)?|then|和|然后|or|或者?|还是)?[\s,;，；、&*`-]{0,20}(?:\d{1,2}[.)、]\s)?",
                    re.IGNORECASE)


def _further_calls(text: str, start: int, end: int, known: Known) -> tuple[list[Part] | None, int]:
    """`Search[a], Search[b]`: complete calls joined to the first; None for an open choice, `Search[a] or Add[1]`."""
    found: list[Part] = []
    while start < end and len(found) < 50:
        joint = _JOINT.match(text, start, end)
        head = _HEAD.match(text, joint.end(), end)
        if head is None or text[head.end():head.end() + 1] != "[" or not known(head[1].strip(_MARKS)):
            break
        if joint[1] and joint[1].casefold() in ("or", "或", "或者", "还是"):
            return None, start
        call, after = _bracketed(text, head.end(), head[1].strip(_MARKS), [end])
        if call.kind != "call":
            break
        found.append(call)
        start = after
    return found, start
