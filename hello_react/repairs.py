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
from itertools import pairwise
from typing import NamedTuple

from .dialects import (
    HEAD,
    MARKS,
    Known,
    Part,
    answer_text,
    bare_calls,
    content,
    decode_json,
    is_finish,
    is_placeholder,
    json_calls,
    means_no_action,
    read_calls,
    standing_json,
)
from .text import BLANKS, THINK, THINK_END, closing_bracket, fences, outside_fences, past, squeeze, unquote

__all__ = ["BLANKS", "LABEL", "Part", "answer_text", "decode_json", "drop_template_tokens", "drop_thinking",
           "is_finish", "is_placeholder", "json_calls", "label_kind", "means_no_action", "parts",
           "plain_words", "registered_name", "squeeze", "unquote", "why_unknown"]

# --- labels -----------------------------------------------------------------------------------------------

_WORDS = {
    "input": "(?:action|tool)[ _]?input|(?:行动|动作|操作|工具|行動|動作)[输輸]入",
    "short_input": "input|[输輸]入",
    "answer": "(?:final[ _])?answer|最[终終](?:答案|回答)|答案|回答",
    "thought": "thoughts?|思考(?:过程)?|想法",
    "other": r"action[ _](?!(?:result|output|response)s?\b)[a-z]{1,20}",
    "action": "actions?|行[动動]|[动動]作|操作",
    "observation": r"(?:observations?|[观觀]察(?:[结結]果)?)(?:[ #\d*_`]{0,8}[(（][^()（）\n]{1,40}[)）])?",
    "question": "question|问题|human|user|用户",
    "result": "(?:action |tool |function |search )?(?:results?|outputs?|responses?)|(?:工具)?(?:输出|返回)"
              "|(?:工具|行[动動]|[动動]作)?(?:返回|输出|执行|搜索|查询)?结果",
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

# What gpt-oss writes before its reply; it has no mark of its own for the end of a draft.
_ANALYSIS = re.compile(r"(?:\s{0,8}(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
                       r"[\s\S]*?(?:<\|end\|>|\Z)|analysis(?=[^\W_a-z])[\s\S]*?(?:assistantfinal|\Z))+")


def drop_thinking(text: str) -> str:
    """`<think>Maybe Action: Delete[all]? No.</think>` before the reply: private drafts must not run.

    Also between thoughts, and with the opening tag missing, as some templates write it: then all that stands
    before the closing tag is the draft. A tag inside an argument or an answer is content, unless words
    follow the closing tag on a line of its own: then the answer was drafted too.
    """
    text = text[past(_ANALYSIS, text, 0):]
    kept, start = list[str](), 0
    while closing := THINK_END.search(text, start):
        opening = THINK.search(text, start, closing.start())
        if opening and _place(text, start, opening.start()) not in ("call", "answer", "input"):
            kept.append(text[start:opening.start()])
        elif not opening and _ends_a_draft(text, start, closing):
            kept.clear()
        else:
            break
        start = closing.end()
    return "".join([*kept, text[start:]])


def _ends_a_draft(text: str, start: int, closing: re.Match[str]) -> bool:
    after = text[closing.end():closing.end() + 80].lstrip(" \t\r")
    draft, words = text[start:closing.start()].strip(BLANKS.replace("\n", "")), after.strip(BLANKS)
    if after and after[0] != "\n" and not LABEL.match(after):
        return False
    if len(fences(draft.lstrip(BLANKS)[1:])) % 2:  # those inside of a fence around the whole reply
        return False
    place = _place(text, start, closing.start())
    return place not in ("call", "answer") or (
        place == "answer" and bool(LABEL.match(words) or (words and draft.endswith("\n"))))


_BARE = r"[\w-]{1,40}(?=[\[【])|(?=\{\s{0,80}[\"'])"
_PLACE = re.compile(rf"{LABEL.pattern}|^[^\S\n]{{0,8}}(?P<bare>{_BARE})", re.MULTILINE | re.IGNORECASE)
_TO_BRACKET = re.compile(r"[^\n\[({【（［]{0,160}\n?[^\S\n]{0,8}(?=[\[({【（［])")


def _place(text: str, start: int, position: int) -> str:
    """Where in a reply that begins at `start` something stands: "call" if one is still open, else what the
    last label before it is."""
    kind, read_to = "", start
    for match in _PLACE.finditer(text, start, position):
        if match.start() < read_to:
            continue
        found = match.lastgroup if match["bare"] is not None else label_kind(match)
        if found in ("action", "bare") and (bracket := _TO_BRACKET.match(text, match.end(), position)):
            read_to = closing_bracket(text, bracket.end()) or len(text)
        if found in ("action", "answer", "input", "thought", "observation"):
            kind = found
    return "call" if read_to > position else kind


_TOKEN = (r"<\|[\w./-]{1,40}\|>|<｜[\w▁]{1,40}｜>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>"
          r"|<eos>|<bos>|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>")
_LEADING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:(?:{_TOKEN}|<answer>)(?:(?:assistant|model)\b|final(?=<\|))?"
                             r"|(?:assistant|ai|助手)\s{0,8}[:：]))+", re.IGNORECASE)
_HALF = re.compile(rf"</s>|</answer>|{THINK_END.pattern}", re.IGNORECASE)
_TRAILING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN})|(?<![ \t])(?:{_HALF.pattern}))+\s*\Z", re.I)
_TURN_END = re.compile(r"(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text|user|observation)\|>|</s>"
                       r"|<｜end▁of▁sentence｜>|<end_of_turn>)(?:[^\S\n]{0,8}(?=\n|<[|｜]|\[INST)"
                       r"|(?=(?:human|user|assistant|model|system)\b))", re.IGNORECASE)


def drop_template_tokens(text: str) -> str:
    """`Assistant: Action: Search[Oslo]<|im_end|>`: the role's name, tokens of a chat template, half of a pair
    (`42</answer>`), and all after an end of turn."""
    text = text[past(_LEADING_TOKENS, text, 0):]
    ended = _TURN_END.search(text)
    if ended and not _closes_a_pair(text, ended) and _place(text, 0, ended.start()) != "call":
        text = text[:ended.start()]
    trailing = _TRAILING_TOKENS.search(text, max(0, len(text) - 400))
    return text[:trailing.start()] if trailing and not _closes_a_pair(text, trailing) else text


def _closes_a_pair(text: str, token: re.Match[str]) -> bool:
    """`<s>struck</s>`: both halves stand in the reply, so they are content."""
    return any(half.replace("/", "") in text[:token.start()] for half in _HALF.findall(token[0]))


def unwrap_fence(text: str) -> str:
    """The whole reply inside one code fence (also one that was not closed): the fence is not content."""
    text = text.strip(BLANKS)
    turns = fences(text)
    whole = len(turns) == 1 or (len(turns) == 2 and turns[1].end() == len(text))
    if whole and turns[0].start() == 0 and LABEL.match(text[turns[0].end():].lstrip(BLANKS)):
        return text[turns[0].end():turns[1].start() if turns[1:] else len(text)]
    return text


TEXT_RULES = (drop_thinking, drop_template_tokens, unwrap_fence)


def _without_marks(text: str) -> str:
    for rule in TEXT_RULES:
        text = rule(text)
    return text


_MARKUP = re.compile(r"^\s{0,8}(?:[{<]|\[[A-Z_]{4,20}\]|\[\s{0,8}[{\"'])", re.MULTILINE)


def plain_words(text: str, names: Sequence[str]) -> str:
    """A reply of words alone (`About 40, I believe.`): no label, call, tag or object; else ""."""
    text = _without_marks(text).strip(BLANKS)
    tools = "|".join(map(re.escape, [*names, "Finish"]))
    called = re.search(rf"(?:{tools})(?:\s?[\[{{【]|[(（])", text, re.IGNORECASE)
    marked = called or _MARKUP.search(text) or THINK.match(text)
    labelled = any(label_kind(label) != "result" for label in LABEL.finditer(text))
    wordless = not re.search(r"\w", text) or is_placeholder(text, "answer")
    return "" if marked or labelled or wordless else text


# --- names, answers, placeholders -------------------------------------------------------------------------

_NOT_MEANT = re.compile(r"\b(?:not|never|no|avoid|without|cannot|would|could|might|example|e\.g|refus\w*"
                        r"|declin\w*|an attack|injection|malicious|dangerous|harmful|unsafe)\b|n't\b"
                        r"|[不别勿莫]|没有|避免|例如|比如|示例|拒绝|攻击|恶意|危险|有害|注入", re.IGNORECASE)
_MENTIONED = re.compile(r"\b(?:already|earlier|used|did|ran|tried|called|asks?|asked|about|means)\b"
                        r"|已经?|之前|刚才|用过|询问|关于", re.IGNORECASE)
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
    marks: str = ""  # what closes the emphasis that begins before the label and goes on behind it


_DRAFT = re.compile(rf"(?:^|(?<=[:：]))[{BLANKS}]{{0,8}}(?:{THINK.pattern})", re.MULTILINE | re.IGNORECASE)


def parts(text: str, known: Known, cut: bool = False) -> Iterator[Part]:
    """The parts of a reply, read with all the rules of this module.

    `known` gives the registered name for one as written, or None. `cut`: the token limit ended the reply.
    """
    text = _without_marks(text)
    draft = next(outside_fences(text, _DRAFT.finditer(text)), None)
    if draft is None or _place(text, 0, draft.start()) in ("call", "answer", "input"):
        yield from _labelled(text, known, cut)
    else:  # cut while it was still thinking
        yield from [*_labelled(text[:draft.start()], known, cut), Part("unclosed")]


def _labelled(text: str, known: Known, cut: bool) -> Iterator[Part]:
    labels = [*_labels(text), _Label("end", len(text), len(text))]
    move = next(label for label in labels if label.kind in ("action", "answer", "end"))
    ended = move.kind == "answer" or _is_ending(text, move)
    if (ended or move.kind == "end") and (midline := _midline_action(text[:move.start], known, ended)):
        labels, ended = sorted([*labels, *midline], key=lambda label: label.start), False
    yield from _unlabelled(_Label("preamble", 0, 0), text, labels[0], known, cut, ended)
    read_to = 0
    stops = [label.start for label in labels]
    for index, (label, following) in enumerate(pairwise(labels)):
        if label.start < read_to:
            continue  # this label stands inside an argument, or was read with the call before it
        if label.kind == "action":
            found, read_to = _action(text, labels, index, stops, known, cut)
            yield from found
        elif label.kind == "answer":
            yield Part("answer", content(text[label.end:following.start], label.marks))
        elif label.kind == "observation":
            yield Part("observation")
        elif label.kind == "thought":
            ended = ended and label.start < move.start and index < 20
            yield from _unlabelled(label, text, following, known, cut, ended)
        else:
            yield Part("thought")  # `Question:`, `Action Reason:`, an input without an action


_OPENING_MARKS = re.compile(r"([*_`]{1,3})[\[【(（<]?[^\W_]")


def _labels(text: str) -> list[_Label]:
    """All labels outside code fences, each with the meaning that its place gives it.

    `Result:` and `User:` after a call are an invention, elsewhere text. `Input:` belongs to a call only.
    In an input, `# Action: start` is a comment of a program, unless the input's own label is written so.
    An answer (`Final Answer: ... Input: x`) is ended only by the labels of a next step.
    """
    labels: list[_Label] = []
    matches = list(outside_fences(text, LABEL.finditer(text)))
    kinds = [*map(label_kind, matches), ""]
    for match, (kind, following) in zip(matches, pairwise(kinds), strict=True):
        before = labels[-1] if labels else _Label("", 0, 0)
        calling = before.kind in ("action", "input", "other")
        weak = kind in ("question", "result")
        comment = match[0].lstrip().startswith(("#", "--") if weak else ("# ", "-- "))
        if comment and before.kind == "input" and kind != "observation" and text[before.start] not in "#-":
            continue
        if weak and calling:
            kind = "observation"
        elif kind == "short_input" and calling:
            kind = "input"
        elif kind in ("result", "short_input") or (kind == "question" and labels and following != "thought"):
            continue
        elif before.kind == "answer" and kind in ("input", "other", "answer"):
            if kind != "answer" or text[before.end:match.start()].strip(BLANKS):
                continue
            labels.pop()  # `Final Answer:` and below it `Answer: Paris`
        opening = _OPENING_MARKS.search(match[0])
        marks = opening[1][::-1] if opening and match[0].rstrip(BLANKS + ":：")[-1] not in "*_`" else ""
        end = match.end() + len(marks) * text.startswith(marks, match.end())  # `**Action:** Search`
        labels.append(_Label(kind, match.start(), end, marks if end == match.end() else ""))
    return labels


_MIDLINE_ACTION = re.compile(r"(?<=[ \t\u00a0\u3000.。!！?？;；,，])[*`]{0,3}(?:action|行动|动作)[*`]{0,3}"
                             rf"{_GAP}[:：][*`]{{0,3}}", re.IGNORECASE)


def _is_ending(text: str, label: _Label) -> bool:
    head = HEAD.match(text, label.end) if label.kind == "action" else None
    return head is not None and is_finish(head[1].strip(MARKS + ".。"))


def _midline_action(text: str, known: Known, ended: bool) -> list[_Label]:
    """`Thought: I need it. Action: Search[x]`: only where a known tool's complete call ends the line.

    A call that does not end it is not run, nor is anything that was written behind it.
    """
    tries = 5  # each may scan the whole text: see test_parsing_is_linear
    for match in _MIDLINE_ACTION.finditer(text) if not fences(text) else ():
        head = HEAD.match(text, match.end())
        if not (head and text.startswith(tuple("[【({（"), head.end()) and known(head[1].strip(MARKS))):
            continue
        tries -= 1
        if tries < 0 or (close := closing_bracket(text, head.end())) is None:
            break
        if _meant(text, match.start(), ended):
            line = text[close + 1:close + 200].split("\n", 1)[0].strip(BLANKS + "*`>•-.。")
            alone = text[head.end()] == "[" and (not line or LABEL.match(line))
            return [_Label("action", match.start(), match.end())] if alone else []
    return []


def _meant(text: str, position: int, ended: bool) -> bool:
    """Whether the words that lead up to an unlabelled call are not `never run` or `for example`; where the
    reply goes on to an ending, nor `I already used`."""
    before = text[max(0, position - 300):position].rstrip(MARKS + "~")
    line = re.split(r"[.!?。！？\n]", before)[-1]
    return not (_NOT_MEANT.search(line) or (ended and _MENTIONED.search(line)))


def _unlabelled(label: _Label, text: str, following: _Label, known: Known, cut: bool, ended: bool,
                ) -> Iterator[Part]:
    """A thought or preamble, and the call that it ends in if no step follows: `Thought: a`, `Search[x]`.

    `ended`: an ending follows. It can't be taken if a call stands before it, nor can that call be trusted.
    """
    start, end, found = label.end, following.start, None
    ended = ended and following.kind != "observation"
    if following.kind in ("action", "answer") and _place(text, start, end) == "call":
        found, ended = (end, [Part("unclosed")]), False
    elif ended or following.kind in ("observation", "end"):
        found = (standing_json(text, start, end) or bare_calls(text, start, end, known)
                 or _bare_fence(text, start, end, known, cut))
    at, calls = found if found and (found[0] == end or _meant(text, found[0], ended)) else (end, [])
    if ended and any(part.kind != "thought" and known(part.name) not in (None, "Finish") for part in calls):
        calls = [Part("problem", name="conflict")]
    elif ended:
        at, calls = end, []
    body = content(text[start:at], label.marks)
    yield from [Part(label.kind, body)] if body or label.kind == "thought" else []
    yield from calls


def _bare_fence(text: str, start: int, end: int, known: Known, cut: bool) -> tuple[int, list[Part]] | None:
    """`Thought: look`, then a code fence that holds the labelled call alone and ends the reply."""
    turns = fences(text, start, end) if start else []
    opening, closing = ([*turns, None] if len(turns) % 2 else [None, None, *turns])[-2:]
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
        argument = content(text[labels[below].end:read_on], labels[below].marks)
    found, after = read_calls(text, start, end, stops, argument, known)
    if argument is None or found[0].kind == "unclosed" or after > labels[below].start:
        return found, after
    two_inputs = after < end or labels[below + 1].kind == "input"
    if two_inputs and found[0].kind == "call" and known(found[0].name):
        found = [Part("problem", "input", "conflict")]
    elif cut and read_on == len(text):
        found = [Part("unclosed", name=found[0].name)]
    return found, read_on
