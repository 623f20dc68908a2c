"""Small named rules that bring what models really write into the documented format (chapter 04 builds some).

1. `TEXT_RULES` take out what is not part of the reply: thinking, template tokens, a fence around it all.
2. `LABEL` finds labels in any case, numbered, bold, with either colon, English or Chinese.
3. `parts` gives what stands after them; `dialects` reads the calls, also those not written `Tool[input]`.

    >>> list(parts("**Action 1:** `search [Oslo]`", known=lambda name: "Search"))
    [Part(kind='call', text='Oslo', name='search')]

Each rule's docstring shows the failure that it mends. All are pure and take linear time: every quantifier
over a run of signs is bounded, and a closing bracket is searched for once for each call that is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from .dialects import (
    HEAD,
    MARKS,
    Known,
    Part,
    answer_text,
    bare_calls,
    decode_json,
    drop_residue,
    is_finish,
    json_calls,
    read_calls,
    standing_json,
)
from .text import BLANKS, FENCE, THINK, THINK_END, closing_bracket, outside_fences, past, squeeze, unquote

__all__ = ["BLANKS", "LABEL", "Part", "answer_text", "decode_json", "drop_template_tokens", "drop_thinking",
           "is_finish", "is_placeholder", "json_calls", "label_kind", "means_no_action", "parts",
           "registered_name", "squeeze", "unquote", "why_unknown"]

# --- labels -----------------------------------------------------------------------------------------------

_WORDS = {
    "input": "(?:action|tool)[ _]?input|(?:行动|动作|操作|工具|行動|動作)[输輸]入",
    "short_input": "input|[输輸]入",
    "answer": "(?:final[ _])?answer|最[终終](?:答案|回答)|答案|回答",
    "thought": "thoughts?|思考(?:过程)?|想法",
    "other": "action[ _][a-z]{1,20}",
    "action": "actions?|行[动動]|[动動]作|操作",
    "observation": r"(?:observations?|[观觀]察(?:[结結]果)?)(?: ?[(（][^()（）\n]{1,40}[)）])?",
    "question": "question|问题|human|user|用户",
    "result": "(?:tool |function |search )?(?:results?|outputs?|responses?)|(?:工具)?(?:输出|返回)"
              "|(?:工具)?(?:返回|输出|执行|搜索|查询)?结果",
}
_WORD = "|".join(f"(?P<{kind}>{words})" for kind, words in _WORDS.items())
_SAME_WORD = "|".join(_WORDS.values())
_GAP = r"[^\S\n]{0,8}"
_NUMBER = r"[#(（\[-]?(?:\d{1,4}|[一二三四五六七八九十①-⑩])[)）\]]?"
_ORNAMENT = BLANKS.replace("\n", "") + ">#*_`•\u2600-\u27bf\ufe0f\U0001f300-\U0001faff-"

LABEL = re.compile(
    # The look-ahead lets a line that can't be a label fail at its first letter: see test_parsing_is_linear.
    rf"^[^\S\n]{{0,40}}(?:[(（]?\d{{1,3}}[.)、）])?[{_ORNAMENT}]{{0,12}}[\[【(（<]?"
    rf"(?=[afhioqrstu行动動操工输輸最答回思想观觀问用返执搜查结])(?:"
    rf"(?:{_WORD}){_GAP}(?:{_NUMBER})?{_GAP}[\]】)）>*_`]{{0,4}}{_GAP}[:：]"
    rf"|(?:(?<=\#)|(?<=\#[ ])|(?<=\*\*))(?P<heading>{_SAME_WORD})(?:{_GAP}{_NUMBER})?\**{_GAP}$"
    rf"|(?<=【)(?P<boxed>{_SAME_WORD})】"
    rf"|(?P<lone>{_WORDS['observation']}){_GAP}$)",
    re.MULTILINE | re.IGNORECASE,
)
"""A label at the start of a line: `**Action 2:**`, `- Thought:`, `行动：`, `【行动】`, or a heading.

The word `Observation` on a line of its own counts as a "result", which is a label after an action only.
"""

_KINDS = [(kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS.items()]


def label_kind(match: re.Match[str]) -> str:
    """The kind of a `LABEL` match: one of the keys of the word table."""
    if match["lone"]:
        return "result"
    word = match["heading"] or match["boxed"]
    return next(kind for kind, words in _KINDS if words.fullmatch(word)) if word else str(match.lastgroup)


# --- rules on the whole text ------------------------------------------------------------------------------

_BLANK_RUN = re.compile(f"[{BLANKS}]*")


def drop_thinking(text: str) -> str:
    """`<think>Maybe Action: Delete[all]? No.</think>` before the reply: private drafts must not run.

    Also with the opening tag missing, as some templates write it. A tag inside an argument is content.
    """
    start = 0
    while opening := THINK.match(text, past(_BLANK_RUN, text, start)):
        closing = THINK_END.search(text, opening.end())
        if closing is None:
            return text[start:]
        start = closing.end()
    closing = THINK_END.search(text, start)
    return text[closing.end():] if closing and _ends_a_draft(text, start, closing) else text[start:]


def _ends_a_draft(text: str, start: int, closing: re.Match[str]) -> bool:
    after = text[closing.end():closing.end() + 80].lstrip(" \t\r")
    alone = not after or after[0] == "\n" or LABEL.match(after)
    return bool(alone) and not _in_call(text, start, closing.start())


def _in_call(text: str, start: int, position: int) -> bool:
    """Whether a labelled call in `text[start:position]` is still open at `position`."""
    read_to = start
    for label in LABEL.finditer(text, start, position):
        if label.start() >= read_to and label_kind(label) == "action":
            bracket = text.find("[", label.end(), position)
            if bracket < 0:
                break
            read_to = closing_bracket(text, bracket) or len(text)
    return read_to > position


_TOKEN = (r"<\|[\w./-]{1,40}\|>|<｜[\w▁]{1,40}｜>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>"
          r"|<eos>|<bos>|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>")
_LEADING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+(?:assistant\b|model\b)?", re.IGNORECASE)
_TRAILING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+\s*\Z", re.IGNORECASE)
_TURN_END = re.compile(r"(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<｜end▁of▁sentence｜>|</s>"
                       r"|<end_of_turn>)[^\S\n]{0,8}(?=\n|<[|｜])", re.IGNORECASE)


def drop_template_tokens(text: str) -> str:
    """`Action: Search[Oslo]<|im_end|>`: tokens of a chat template, and all after an end of turn."""
    text = text[past(_LEADING_TOKENS, text, 0):]
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


TEXT_RULES = (drop_thinking, drop_template_tokens, unwrap_fence, drop_role_word)

# --- names, answers, placeholders -------------------------------------------------------------------------

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
    dots = kind != "name" and re.fullmatch(r"[.…。]+", text)
    inner = text.strip("<>{}[]()«»" + BLANKS)
    return bool(dots or re.fullmatch(f"{_BEFORE}(?:{words}){_AFTER}", inner))


_NOT_MEANT = re.compile(r"\b(?:not|never|no|avoid|without|cannot|would|could|might|example|e\.g)\b|n't\b"
                        r"|[不别勿莫]|没有|避免|例如|比如|示例", re.IGNORECASE)
_TALK = re.compile(r"(?:i|we|let|please|use|using|call|try|run|invoke|execute|perform|do|now|then|next)\b"
                   "|使用|调用|用|执行|请|先|再", re.IGNORECASE)


def registered_name(name: str, names: Sequence[str] | None) -> str | None:
    """The registered name: exact, or else the only one that differs by case, blanks, `_` and `-` alone.

    "Finish" for an ending in any spelling, None for all else. Without `names` any name will do.
    """
    if is_finish(name):
        return "Finish"
    if names is None:
        return name if name and why_unknown(name) == "unknown_tool" else None
    same = [known for known in names if squeeze(known) == squeeze(name)]
    return name if name in names else same[0] if len(same) == 1 else None


def why_unknown(written: str) -> str:
    """The reason why what stands on an Action line names no tool, one of `parser.REASONS`.

    `Do not call Delete[all]`, `不要调用 Delete[all]`, `use Search[Oslo]` are prose, which must not run.
    """
    if not squeeze(written[:200].strip(MARKS)):
        return "no_action"
    name = re.split(r"[(（\[{]", written[:200])[0].strip(BLANKS)
    if is_placeholder(name, "name"):
        return "placeholder"
    if is_finish(name):
        return "missing_input"
    words = re.findall(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+", name)
    talk = len(words) > 1 and (_TALK.match(name) or _NOT_MEANT.search(name))
    return "prose_action" if talk or len(name.split()) > 3 or len(words) > 6 else "unknown_tool"


# --- the parts of a reply ---------------------------------------------------------------------------------

class _Label(NamedTuple):
    kind: str
    start: int
    end: int


def parts(text: str, known: Known, cut: bool = False) -> Iterator[Part]:
    """The parts of a reply, read with all the rules of this module.

    `known` gives the registered name for one as written, or None. `cut`: the token limit ended the reply.
    """
    for rule in TEXT_RULES:
        text = rule(text)
    if THINK.match(text, past(_BLANK_RUN, text, 0)):
        yield Part("unclosed")  # cut while it was still thinking
    else:
        yield from _labelled(text, known, cut)


def _labelled(text: str, known: Known, cut: bool) -> Iterator[Part]:
    labels = [*_labels(text), _Label("end", len(text), len(text))]
    if not any(label.kind in ("action", "answer") for label in labels):
        labels = sorted([*labels, *_midline_action(text, known)], key=lambda label: label.start)
    yield from _unlabelled("preamble", text, 0, labels[0], known, cut)
    read_to = 0
    stops = [label.start for label in labels]
    for index, (label, following) in enumerate(pairwise(labels)):
        if label.start < read_to:
            continue  # this label stands inside an argument, or was read with the call before it
        if label.kind == "action":
            found, read_to = _action(text, labels, index, stops, known, cut)
            yield from found
        elif label.kind == "answer":
            yield Part("answer", _unbold(drop_residue(text[label.end:following.start])))
        elif label.kind == "observation":
            yield Part("observation")
        elif label.kind == "thought":
            yield from _unlabelled("thought", text, label.end, following, known, cut)
        else:
            yield Part("thought")  # `Question:`, `Action Reason:`, an input without an action


_CLOSING_MARKS = re.compile(r"[*`]{0,3}")


def _labels(text: str) -> list[_Label]:
    """All labels outside code fences, each with the meaning that its place gives it.

    `Result:` and `User:` after a call are an invention, elsewhere text. `Input:` belongs to a call only.
    An answer (`Final Answer: ... Input: x`) is ended only by the labels of a next step.
    """
    labels: list[_Label] = []
    matches = list(outside_fences(text, LABEL.finditer(text)))
    kinds = [*map(label_kind, matches), ""]
    for match, (kind, following) in zip(matches, pairwise(kinds), strict=True):
        before = labels[-1] if labels else _Label("", 0, 0)
        calling = before.kind in ("action", "input", "other")
        if kind in ("question", "result") and calling:
            kind = "observation"
        elif kind == "short_input" and calling:
            kind = "input"
        elif kind in ("result", "short_input") or (kind == "question" and labels and following != "thought"):
            continue
        elif before.kind == "answer" and kind in ("input", "other", "answer"):
            if kind != "answer" or text[before.end:match.start()].strip(BLANKS):
                continue
            labels.pop()  # `Final Answer:` and below it `Answer: Paris`
        bold = "*" in match[0] or "`" in match[0]  # `**Action:**`, but not `Action Input:**/*.py`
        end = past(_CLOSING_MARKS, text, match.end()) if bold else match.end()
        labels.append(_Label(kind, match.start(), end))
    return labels


_MIDLINE_ACTION = re.compile(r"(?<=[ \t\u00a0\u3000.。!！?？;；,，])[*`]{0,3}(?:action|行动|动作)[*`]{0,3}"
                             rf"{_GAP}[:：][*`]{{0,3}}", re.IGNORECASE)


def _midline_action(text: str, known: Known) -> list[_Label]:
    """`Thought: I need it. Action: Search[x]`: only where a known tool's complete call ends the line."""
    tries = 5  # each may scan the whole text: see test_parsing_is_linear
    for match in _MIDLINE_ACTION.finditer(text) if not FENCE.search(text) else ():
        head = HEAD.match(text, match.end())
        if head is None or text[head.end():head.end() + 1] != "[" or not known(head[1].strip(MARKS)):
            continue
        tries -= 1
        close = closing_bracket(text, head.end()) if tries >= 0 else None
        if close is None:
            break
        line = text[close + 1:close + 200].split("\n", 1)[0].strip(MARKS + ".。")
        if (not line or LABEL.match(line)) and _meant(text, match.start()):
            return [_Label("action", match.start(), match.end())]
    return []


def _meant(text: str, position: int) -> bool:
    """Whether the words that lead up to an unlabelled call are not `never run` or `for example`."""
    before = text[max(0, position - 300):position].rstrip(MARKS + "~")
    return not _NOT_MEANT.search(re.split(r"[.!?。！？\n]", before)[-1])


def _unlabelled(kind: str, text: str, start: int, following: _Label, known: Known, cut: bool,
                ) -> Iterator[Part]:
    """A thought or preamble, and the call that it ends in if no step follows: `Thought: a`, `Search[x]`."""
    end, found = following.start, None
    if following.kind in ("observation", "end"):
        found = (standing_json(text, start, end) or bare_calls(text, start, end, known)
                 or _bare_fence(text, start, end, known, cut))
    at, calls = found if found and _meant(text, found[0]) else (end, [])
    body = _unbold(text[start:at].strip(BLANKS))
    yield from [Part(kind, body)] if body or kind == "thought" else []
    yield from calls


def _unbold(text: str) -> str:
    """`**Thought: look it up**`: bold around the whole line, which the label took the opening stars of."""
    return text[:-2].rstrip(BLANKS) if text.endswith("**") and text.count("**") % 2 else text


def _bare_fence(text: str, start: int, end: int, known: Known, cut: bool) -> tuple[int, list[Part]] | None:
    """`Thought: look`, then a code fence that holds the labelled call alone and ends the reply."""
    fences = list(islice(FENCE.finditer(text, start, end), 5_000)) if start else []
    opening, closing = ([*fences, None] if len(fences) % 2 else [None, None, *fences])[-2:]
    if opening is None or (closing and text[closing.end():end].strip(BLANKS)):
        return None
    inner = text[opening.end():closing.start() if closing else end].strip(BLANKS)
    label = LABEL.match(inner)
    called = label is not None and label_kind(label) == "action"
    return (opening.start(), list(_labelled(inner, known, cut))) if called else None


def _action(text: str, labels: list[_Label], index: int, stops: list[int], known: Known, cut: bool,
            ) -> tuple[list[Part], int]:
    """The parts of an action and where reading goes on. An argument in brackets may run over labels."""
    start, end = labels[index].end, labels[index + 1].start
    below = index + 1
    while labels[below].kind == "other":  # `Action Reason:` between the action and its input
        below += 1
    argument, read_on = None, end
    if labels[below].kind == "input":
        read_on = labels[below + 1].start
        argument = drop_residue(text[labels[below].end:read_on])
    found, after = read_calls(text, start, end, stops, argument, known)
    if argument is None or found[0].kind == "unclosed" or after > labels[below].start:
        return found, after
    two_inputs = after < end or labels[below + 1].kind == "input"
    if two_inputs and found[0].kind == "call" and known(found[0].name):
        found = [Part("problem", "input", "conflict")]
    elif cut and read_on == len(text):
        found = [Part("unclosed", name=found[0].name)]
    return found, read_on
