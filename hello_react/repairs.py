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
    "observation": "observations?|[观觀]察(?:[结結]果)?",
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
    keyword = _ANSWER_KEYWORD.match(text)
    value = text[keyword.end():] if keyword else ""
    if keyword and (value[:1] not in tuple("\"'“") or unquote(value) != value):
        text = value
    return unquote(text) if text.strip(BLANKS + "\"'`*“”‘’") else ""


_FILLER = re.compile(r"(?:the|your|an?|final|actual|real|here|insert|enter|put|some|my|this|to|for|of|in|is|original|input|"
                     r"question|task|above|这里|此处|在此|填写|填入|写|请|你的|您的|最终的?|的|内容|输入)")
_PLACEHOLDERS = {
    "answer": "answer|答案|回答",
    "input": "tool ?input|search ?(?:query|terms?|keywords?)|工具|搜索|查询|搜索(?:词|关键词)",
    "wrapped input": "query|question|argument|arguments|text|expression|keywords?|parameters?|关键词|参数|查询|表达式|问题",
    "name": "tool|tool ?name|action|action ?name|name|工具|工具名称?|动作|行动",
}
