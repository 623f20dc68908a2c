"""Small named rules that bring what models really write into the documented format (chapter 04 builds the first ones).

Three kinds, in the order in which `parser.parse` uses them:

1. `TEXT_RULES` take out what is not part of the reply: thinking, template tokens, a fence around it all.
2. `LABEL` finds labels in any case, numbered, bold, with either colon, English or Chinese.
3. `parts` reads what stands after them, also calls not written `Tool[input]`: two lines, a function call, JSON.

Each rule's docstring shows the failure that it mends. All are pure and run in linear time: every quantifier over
a run of signs is bounded, and text is scanned for a closing bracket once for each call that is read.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Optional

from .text import closing_bracket

# --- labels -----------------------------------------------------------------------------------------------------

_WORDS = {
    "input": "action input|action_input|tool input|行动输入|动作输入|工具输入|输入",
    "answer": "final answer|final_answer|answer|最终答案|最终回答|答案|回答",
    "thought": "thoughts?|思考|想法",
    "other": "action[ _][a-z]{1,20}",
    "action": "action|行动|动作|操作",
    "observation": "observations?|观察结果|观察",
    "question": "question|问题",
    "result": "(?:tool )?result|结果",
}
_WORD = "|".join(f"(?P<{kind}>{words})" for kind, words in _WORDS.items())
_SAME_WORD = "|".join(words for words in _WORDS.values())
_GAP = r"[^\S\n]{0,8}"

LABEL = re.compile(
    # The look-ahead lets a line that can't be a label fail at its first letter: see test_parsing_is_linear.
    rf"^[^\S\n]{{0,40}}(?:\d{{1,3}}[.)、])?[ \t\u00a0\u3000>#*_`•\ufeff\u200b-]{{0,12}}"
    rf"(?=[aftoqrs行动操工输最答回思想观问结])(?:"
    rf"(?:{_WORD}){_GAP}(?:[#(]?\d{{1,4}}\)?)?{_GAP}[*_`]{{0,3}}{_GAP}[:：]\**"
    rf"|(?:(?<=\#)|(?<=\#[ ])|(?<=\*\*))(?P<bare>{_SAME_WORD})(?:{_GAP}\#?\d{{1,4}})?\**{_GAP}$)",
    re.MULTILINE | re.IGNORECASE,
)
"""A label at the start of a line: `**Action 2:**`, `- Thought:`, `行动：`, or a heading that is only the word."""

_KIND_OF_BARE = [(kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS.items()]


def label_kind(match: re.Match[str]) -> str:
    """The kind of a `LABEL` match: one of the keys of the word table."""
    if match["bare"] is not None:
        return next(kind for kind, words in _KIND_OF_BARE if words.fullmatch(match["bare"]))
    return str(match.lastgroup)


_MIDLINE_ACTION = re.compile(rf"(?<=[ \t\u00a0\u3000.。!！?？;；,，])(?:action|行动|动作){_GAP}[:：]\**", re.IGNORECASE)
"""`Thought: I need a number. Action: Search[x]`: a label inside a line, looked for only if no line starts with one."""

# --- rules on the whole text --------------------------------------------------------------------------------------

BLANKS = " \t\r\n\f\v\u00a0\u3000\ufeff\u200b\u200c\u200d\u2060"
_THINK = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THINK_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


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
    while text[start:start + 1] and text[start] in BLANKS:
        start += 1
    return start


def _ends_a_draft(text: str, start: int, closing: re.Match[str]) -> bool:
    after = text[closing.end():closing.end() + 80].lstrip(" \t\r")
    if after and after[0] != "\n" and not LABEL.match(after):
        return False
    actions = [label for label in LABEL.finditer(text, start, closing.start()) if label_kind(label) == "action"]
    bracket = text.find("[", actions[-1].end(), closing.start()) if actions else -1
    end = closing_bracket(text, bracket) if bracket >= 0 else None
    return bracket < 0 or (end is not None and end < closing.start())


_TOKEN = (r"<\|[\w./-]{1,40}\|>|<｜[\w▁]{1,40}｜>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<eos>|<bos>"
          r"|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>")
_LEADING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+(?:assistant\b|model\b)?", re.IGNORECASE)
_TRAILING_TOKENS = re.compile(rf"(?:\s{{0,8}}(?:{_TOKEN}))+\s*\Z", re.IGNORECASE)
_TURN_END = re.compile(r"(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<｜end▁of▁sentence｜>|</s>|<end_of_turn>)"
                       r"[^\S\n]{0,8}(?=\n)", re.IGNORECASE)


def drop_template_tokens(text: str) -> str:
    """`Action: Search[Oslo]<|im_end|>`: tokens of the chat template at either end, and whatever follows an end of turn."""
    leading = _LEADING_TOKENS.match(text)
    if leading:
        text = text[leading.end():]
    ended = _TURN_END.search(text)
    if ended and not _inside_argument(text, ended.start()):
        text = text[:ended.start()]
    trailing = _TRAILING_TOKENS.search(text, max(0, len(text) - 400))
    return text[:trailing.start()] if trailing else text


def _inside_argument(text: str, position: int) -> bool:
    bracket = text.find("[", 0, position)
    end = closing_bracket(text, bracket) if bracket >= 0 else None
    return end is not None and end > position


_ROLE = re.compile(r"(?:assistant|ai|助手)\s{0,8}[:：]\s{0,8}(?=\S)", re.IGNORECASE)


def drop_role_word(text: str) -> str:
    """`Assistant: Thought: look`: the role's name in front of the first label."""
    role = _ROLE.match(text)
    return text[role.end():] if role and LABEL.match(text, role.end()) is None and LABEL.match(text[role.end():]) \
        else text


FENCE = re.compile(r"^[^\S\n]{0,3}(?:```|~~~)[^\n`]*$", re.MULTILINE)


def unwrap_fence(text: str) -> str:
    """The whole reply inside one code fence (also one that was not closed): the fence is not content."""
    text = text.strip(BLANKS)
    fences = list(_up_to(FENCE, text, 3))
    if fences and fences[0].start() == 0 and LABEL.match(text[fences[0].end():].lstrip(BLANKS)):
        if len(fences) == 1:
            return text[fences[0].end():]
        if len(fences) == 2 and fences[1].end() == len(text):
            return text[fences[0].end():fences[1].start()]
    return text


def unwrap_tool_call_tag(text: str) -> str:
    """`<tool_call>{"name": "Search", ...}</tool_call>`: a model's native call format leaked into the text."""
    match = re.search(r"<(tool_call|function_call|tool_calls)>\s{0,8}(?=[\[{])", text)
    if match is None or LABEL.search(text, 0, match.start()) and "action" in {
        label_kind(found) for found in LABEL.finditer(text, 0, match.start())
    }:
        return text
    return text[:match.start()] + "\n" + text[match.end():].replace(f"</{match[1]}>", "", 1)


def _up_to(pattern: re.Pattern[str], text: str, count: int) -> Sequence[re.Match[str]]:
    found = []
    for match in pattern.finditer(text):
        found.append(match)
        if len(found) == count:
            break
    return found


TEXT_RULES: tuple[Callable[[str], str], ...] = (
    drop_thinking, drop_template_tokens, unwrap_fence, unwrap_tool_call_tag, drop_role_word,
)


# --- names, quotes, placeholders ------------------------------------------------------------------------------------

def squeeze(name: str) -> str:
    """`Web-Search`, `web search` and `WEB_SEARCH` are one name: case, blanks, `_` and `-` dropped."""
    return re.sub(r"[\s_\u200b\ufeff-]+", "", name).casefold()


def unquote(argument: str) -> str:
    """`Search["Mate 70"]`: one pair of quotes around the whole argument goes; anything less stays."""
    argument = argument.strip(BLANKS)
    if len(argument) >= 2 and (argument[0], argument[-1]) in (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’")):
        inner = re.sub(r"\\.", "", argument[1:-1], flags=re.DOTALL)
        if argument[0] not in inner and argument[-1] not in inner and not argument.endswith("\\" + argument[-1]):
            return argument[1:-1].strip(BLANKS)
    return argument


_ANSWER_KEYWORD = re.compile(r"(?:final_)?answer\s{0,8}=\s{0,8}(?=[\"'“])", re.IGNORECASE)


def unwrap_answer_keyword(answer: str) -> str:
    """`Finish[answer="Paris"]`: only the keyword named answer, with one quoted text."""
    keyword = _ANSWER_KEYWORD.match(answer)
    if keyword:
        value = answer[keyword.end():]
        return unquote(value) if unquote(value) != value else answer
    return answer


_PLACEHOLDER_ANSWERS = {"answer", "theanswer", "youranswer", "finalanswer", "thefinalanswer", "yourfinalanswer",
                        "answerhere", "youranswerhere", "答案", "最终答案", "你的答案", "最终的答案"}
_PLACEHOLDER_INPUTS = {"toolinput", "thetoolinput", "yourinput", "theinput", "inputtothetool", "工具输入"}
_WRAPPED_INPUTS = _PLACEHOLDER_INPUTS | {"input", "query", "yourquery", "searchquery", "question", "argument",
                                         "arguments", "text", "expression", "输入", "参数", "查询", "查询内容"}
_PLACEHOLDER_NAMES = {"tool", "toolname", "thetool", "yourtool", "nameofthetool", "action", "actionname", "工具",
                      "工具名", "工具名称"}


def is_placeholder(text: str, kind: str) -> bool:
    """`Finish[final answer]`, `Search[{tool_input}]`, `tool_name[...]`: the template copied instead of filled in.

    `kind` is "answer", "input" or "name".
    """
    text = text.strip(BLANKS)
    if len(text) > 80:
        return False
    if kind != "name" and re.fullmatch(r"[.…。]+", text):
        return True
    inner = squeeze(text.strip("<>{}[]()«»" + BLANKS))
    if kind == "input":
        return inner in (_WRAPPED_INPUTS if text[:1] in "<{[" and text else _PLACEHOLDER_INPUTS)
    return inner in (_PLACEHOLDER_ANSWERS if kind == "answer" else _PLACEHOLDER_NAMES)


_NO_ACTION = {"none", "null", "na", "n/a", "noaction", "noactionneeded", "noneneeded", "无", "不需要", "无需行动"}


def means_no_action(body: str) -> bool:
    """`Action: None`: a way to say that no tool is meant."""
    return squeeze(body.strip(BLANKS + ".。*`[]()\"'")) in _NO_ACTION


_FINISH = {"finish", "finalanswer", "完成", "结束"}


def is_finish(name: str) -> bool:
    """`FINISH`, `final answer`: the ending in another spelling, as a whole name."""
    return squeeze(name) in _FINISH


# --- the parts of a reply ------------------------------------------------------------------------------------------

class Part(NamedTuple):
    """A piece of a reply. `kind` is one of

    thought, preamble, observation   text that is no move
    call                             a complete call: `name` and its input in `text`
    answer                           an ending that only a label marks
    remark                           an Action line that holds no call
    unclosed                         a call that does not close: `name`, and in `text` all that follows
    problem                          `name` is one of `parser.REASONS`
    """

    kind: str
    text: str = ""
    name: str = ""


Known = Callable[[str], "str | None"]


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
    if not text.strip(BLANKS):
        return
    if _THINK.match(text.lstrip(BLANKS)):
        yield Part("problem", name="unclosed")  # cut while it was still thinking
        return
    labels = _labels(text)
    if not any(label.kind in ("action", "answer") for label in labels):
        labels += _midline_action(text, known)
        labels.sort(key=lambda label: label.start)
    yield from _unlabelled("preamble", text, 0, labels[0].start if labels else len(text), bool(labels), known)
    read_to = 0
    for index, label in enumerate(labels):
        if label.start < read_to:
            continue  # this label stands inside an argument, or was read with the call before it
        later = labels[index + 1:index + 3]
        end = later[0].start if later else len(text)
        if label.kind == "thought":
            follows = later[0].kind if later else ""
            yield from _unlabelled("thought", text, label.end, end, follows not in ("", "observation"), known)
        elif label.kind == "answer":
            yield Part("answer", unquote(json_answer(text[label.end:end].strip(BLANKS))))
        elif label.kind == "observation":
            yield Part("observation")
        elif label.kind == "action":
            found, read_to = _read_action(text, label.end, end, later, known, cut)
            yield from found


def _labels(text: str) -> list[_Label]:
    """All labels outside code fences. Weak ones (`Result:`, `Question:`, `Input:`) count only after an action."""
    labels: list[_Label] = []
    fences = [match.start() for match in FENCE.finditer(text)] if "```" in text or "~~~" in text else []
    passed = 0
    for match in islice(LABEL.finditer(text), 10_000):
        while passed < len(fences) and fences[passed] < match.start():
            passed += 1
        if passed % 2:
            continue
        kind = label_kind(match)
        before = labels[-1].kind if labels else ""
        if kind in ("question", "result"):
            if before in ("action", "input"):
                kind = "observation"
            elif kind == "result" or labels:
                continue
        if kind == "input" and before == "other":
            labels.pop()
        labels.append(_Label(kind, match.start(), match.end()))
    return labels


def _midline_action(text: str, known: Known) -> list[_Label]:
    """`Thought: I need it. Action: Search[x]` on one line: only with a known tool's complete call that ends the line."""
    if FENCE.search(text):
        return []
    tries = 5  # each may scan the whole text: see test_parsing_is_linear
    for match in _MIDLINE_ACTION.finditer(text):
        call = _HEAD.match(text, match.end())
        if call is None or text[call.end():call.end() + 1] != "[" or not known(call[1].strip(BLANKS)):
            continue
        tries -= 1
        if tries < 0:
            break
        close = closing_bracket(text, call.end())
        line = "" if close is None else text[close + 1:close + 200].split("\n", 1)[0].strip(BLANKS + ".。*`")
        if close is not None and (not line or LABEL.match(line)):
            return [_Label("action", match.start(), match.end())]
    return []


def _unlabelled(kind: str, text: str, start: int, end: int, followed: bool, known: Known) -> Iterator[Part]:
    """A thought or preamble, and the call that it ends in if no label follows: `Thought: look`, then `Search[Oslo]`."""
    for form in () if followed else (_bare_json, _bare_call, _bare_fence):
        found = form(text, start, end, known)
        if found:
            at, calls = found
            thought = text[start:at].strip(BLANKS)
            if thought:
                yield Part("thought", thought)
            yield from calls
            return
    body = text[start:end].strip(BLANKS)
    if kind == "thought" and body.endswith("**") and body.count("**") % 2:
        body = body[:-2]  # `**Thought: look it up**`: bold around the whole line
    if body:
        yield Part(kind, body)


# --- calls -----------------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"[\s>*`\"'“•-]{0,20}([^\[\](){}（）【】［］:：\n]{1,120})")
_AFTER_NAME = re.compile(r"[\"'”*`]{0,4}[^\S\n]{0,8}\n?[^\S\n]{0,8}")


def _read_action(text: str, start: int, end: int, later: Sequence[_Label], known: Known, cut: bool,
                 ) -> tuple[list[Part], int]:
    """The parts of an action's text and where reading goes on. An argument in brackets may run over labels."""
    argument = None
    if later and later[0].kind == "other":  # `Action Reason:` between the action and its input
        later = later[1:]
    if later and later[0].kind == "input":
        after = later[1].start if len(later) > 1 else len(text)
        argument = trim_input(text[later[0].end:after])
    call, read_to = _call(text, start, end, argument, known)
    if call.kind != "call" or not known(call.name):
        return [call], read_to
    if argument is not None and read_to <= later[0].start and text[read_to - 1:read_to] in tuple("])】］）"):
        return [Part("problem", "input", "conflict")], read_to
    if argument is not None and read_to <= later[0].start:
        if cut and after == len(text):
            return [Part("unclosed", argument, call.name)], after
        read_to = after
    further = _further_calls(text, read_to, end, known) if known(call.name) != "Finish" else []
    if further is None:
        return [Part("problem", name="prose_action")], read_to
    return [call, *further], read_to


def _call(text: str, start: int, end: int, argument: str | None, known: Known) -> tuple[Part, int]:
    body = text[start:end].strip(BLANKS)
    if FENCE.match(body):
        return _fenced(body, argument, known)[0], end
    lead = _LEAD.match(text, start)
    first = lead.end() if lead else start
    if text[first:first + 1] in ("{", "[") and first < end:
        return _json_or_listed_name(text, first, end, argument, known)
    head = _HEAD.match(text, start, end)
    if head is None:
        return Part("remark", body), end
    name = head[1].strip(BLANKS + "*`\"'“”")
    after = _AFTER_NAME.match(text, head.end())
    opening = after.end() if after else head.end()
    sign = text[opening:opening + 1]
    if sign and sign in "[【［" and (opening == head.end() or known(name) or sign == "["):
        return _bracketed(text, opening, name)
    if argument is not None:
        return _two_lines(text[head.end():end].strip(BLANKS + "*`\"'”."), name, argument, known), end
    if is_finish(name) and sign in (":", "："):
        return Part("answer", unquote(text[opening + 1:end])), end
    if sign and sign in "(（{" and known(name) and opening < end:
        return _function_call(text, opening, end, name, touching=opening == head.end())
    if is_finish(name):
        return Part("remark", name="Finish"), end
    if any(known(" ".join(name.split()[:count])) for count in (1, 2, 3)):
        conflict = re.search("final answer|finish", name, re.IGNORECASE)
        return Part("problem", name, "conflict" if conflict else "missing_input"), end
    return Part("remark", body), end


_LEAD = re.compile(r"[\s>*`-]{0,20}")


def _bracketed(text: str, opening: int, name: str) -> tuple[Part, int]:
    """`Finish [42]`, `Search【Oslo】`, the bracket on the next line: blanks before it and full-width forms."""
    close = closing_bracket(text, opening)
    if close is None:
        return Part("unclosed", text[opening + 1:], name), len(text)
    return Part("call", clean_argument(text[opening + 1:close], name), name), close + 1


def clean_argument(argument: str, name: str) -> str:
    """An argument without outer blanks and one pair of quotes; an answer also without `answer=`."""
    argument = argument.strip(BLANKS)
    return unquote(json_answer(unwrap_answer_keyword(argument)) if is_finish(name) else argument)


def _fenced(body: str, argument: str | None, known: Known) -> tuple[Part, int]:
    """The call alone in a code fence below the label."""
    inner = re.sub(r"\A(?:```|~~~)[^\n]*\n?", "", body)
    inner = re.split(r"^[^\S\n]{0,3}(?:```|~~~)", inner, maxsplit=1, flags=re.MULTILINE)[0].strip(BLANKS)
    return _call(inner, 0, len(inner), argument, known) if inner else (Part("remark"), 0)


def _json_or_listed_name(text: str, start: int, end: int, argument: str | None, known: Known) -> tuple[Part, int]:
    """`Action: {"action": "Search", ...}`; `Action: [Python REPL]` with the input below. Cut JSON never runs."""
    close = closing_bracket(text, start)
    if close is None:
        return Part("unclosed", text[start + 1:]), len(text)
    name = text[start + 1:close].strip(BLANKS + "\"'`")
    if argument is not None and known(name):
        return Part("call", clean_argument(argument, name), name), end
    value, after = decode_json(text, start, len(text))
    calls = json_calls(value)
    if calls:
        return Part("call", clean_argument(calls[0][1], calls[0][0]), calls[0][0]), after
    if text[start] == "{":
        return Part("call", name=text[start:close + 1]), close + 1
    return Part("call", name, ""), close + 1


def _two_lines(remainder: str, name: str, argument: str, known: Known) -> Part:
    """`Action: Search` and `Action Input: Oslo` below it; a remark in round brackets after the name is dropped."""
    if remainder in (":", "：") and not known(name):
        return Part("problem", name, "conflict")
    if remainder.lstrip(":：") and remainder[0] not in "(（":
        return Part("problem", name, "missing_input") if known(name) else Part("remark", name)
    again = re.match(rf"{re.escape(name)}\s{{0,8}}(?=[\[(])", argument)
    if again and closing_bracket(argument, again.end()) == len(argument) - 1:
        argument = argument[again.end() + 1:-1]  # the call was repeated as its own input
    if argument[:1] in ("{", "[") and closing_bracket(argument, 0) is None:
        return Part("unclosed", argument[1:], name)
    return Part("call", clean_argument(argument, name), name)


def trim_input(argument: str) -> str:
    """`Observ` on a last line of its own: what a stop word left over."""
    head, line_end, last = argument.rstrip(BLANKS).rpartition("\n")
    word = last.strip(BLANKS + "*#").casefold()
    if line_end and len(word) >= 4 and "observation".startswith(word):
        return head.strip(BLANKS)
    return argument.strip(BLANKS)


_KEYWORD = re.compile(r"[A-Za-z_]\w{0,60}\s{0,8}=[^=]")


def _function_call(text: str, opening: int, end: int, name: str, touching: bool) -> tuple[Part, int]:
    """`Search("Oslo")`, `Search(query="Oslo")`, `Search {"query": "Oslo"}`.

    Bare words in round brackets count only right after the name and at the end of the line: `Calculator (the sum)`
    may be a remark, `Calculator(3+4)*2` is half a call.
    """
    close = closing_bracket(text, opening)
    if close is None:
        return Part("unclosed", text[opening + 1:], name), len(text)
    inner = text[opening:close + 1] if text[opening] == "{" else text[opening + 1:close].strip(BLANKS)
    marked = unquote(inner) != inner or _KEYWORD.match(inner) or inner[:1] in ("{", "[") or not inner
    line = text[close + 1:end].split("\n", 1)[0]
    if marked or (touching and not line.strip(BLANKS + ".。;；*`")):
        return Part("call", clean_argument(inner, name), name), close + 1
    return Part("problem", name, "missing_input"), end


_JOINT = re.compile(r"[\s,;，；、&*`.-]{0,20}(and|then|和|然后|or|或者?|还是)?[\s,;，；、&*`-]{0,20}", re.IGNORECASE)


def _further_calls(text: str, start: int, end: int, known: Known) -> list[Part] | None:
    """`Search[a], Search[b]`: complete calls joined to the first; None for an open choice, `Search[a] or Add[1]`."""
    found: list[Part] = []
    while start < end and len(found) < 50:
        joint = _JOINT.match(text, start, end)
        head = _HEAD.match(text, joint.end() if joint else start, end)
        if head is None or text[head.end():head.end() + 1] != "[" or not known(head[1].strip(BLANKS)):
            break
        if joint and joint[1] and joint[1].casefold() in ("or", "或", "或者", "还是"):
            return None
        close = closing_bracket(text, head.end())
        if close is None:
            break
        name = head[1].strip(BLANKS)
        found.append(Part("call", clean_argument(text[head.end() + 1:close], name), name))
        start = close + 1
    return found


# --- calls without a label ------------------------------------------------------------------------------------------

_LINE_START = re.compile(r"^[^\S\n]{0,8}[*`>-]{0,3}[^\S\n]?([A-Za-z_\u4e00-\u9fff][^\[\](){}:：\n]{0,60})\[", re.MULTILINE)
_JSON_START = re.compile(r"^[^\S\n]{0,8}(?:(?:```|~~~)\w{0,10}\s{0,8})?(?=[{\[]\s{0,80}[\"'{])", re.MULTILINE)
_FENCED_ACTION = re.compile(r"^(?:```|~~~)\w{0,10}\n(?:\*\*)?Action:(?:\*\*)?([^\n]*)\n(?:```|~~~)\s*\Z", re.MULTILINE)

Bare = Optional[tuple[int, list[Part]]]


def _bare_call(text: str, start: int, end: int, known: Known) -> Bare:
    """A last line that is one complete call of a known tool: `Search[Mate 70 price]`."""
    for match in islice(_LINE_START.finditer(text, start, end), 1000) if "]" in text else ():
        if not known(match[1].strip(BLANKS)):
            continue
        part, after = _bracketed(text, match.end() - 1, match[1].strip(BLANKS))
        if part.kind == "call" and after <= end and not text[after:end].strip(BLANKS + "*`.。"):
            return match.start(), [part]
        return None
    return None


def _bare_json(text: str, start: int, end: int, known: Known) -> Bare:
    """A JSON object that stands on its own: `{"action": "Search", "action_input": "Oslo"}`."""
    match = _JSON_START.search(text, start, end) if "}" in text else None
    if match is None:
        return None
    if start == 0 and text[:match.start()].strip(BLANKS):
        return None  # prose without any label around an object: it may be a sample
    value, after = decode_json(text, match.end(), end)
    calls = json_calls(value)
    if not calls or text[after:end].strip(BLANKS + "`~"):
        return None
    thought = json_thought(value)
    found = [Part("call", clean_argument(argument, name), name) for name, argument in calls]
    return match.start(), [Part("thought", thought), *found] if thought else found


def _bare_fence(text: str, start: int, end: int, known: Known) -> Bare:
    """`Thought: look`, then a code fence that holds the labelled call alone and ends the reply."""
    match = _FENCED_ACTION.search(text, start, end) if start else None
    if match is None:
        return None
    part, after = _call(text, match.start(1), match.end(1), None, known)
    return (match.start(), [part]) if part.kind == "call" and after <= match.end(1) else None


# --- JSON -----------------------------------------------------------------------------------------------------------

def decode_json(text: str, start: int, end: int) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends, or (None, start). Python's quotes are read too, up to 4,000 signs."""
    try:
        value, after = json.JSONDecoder(strict=False).raw_decode(text[start:end])
        return value, start + after
    except (ValueError, RecursionError):
        pass
    close = closing_bracket(text, start) if text[start:start + 1] in ("{", "[") else None
    if close is None or close >= end or close - start > 4000 or text.count("[", start, close) > 50:
        return None, start
    try:
        return ast.literal_eval(text[start:close + 1]), close + 1
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None, start


_NAME_KEYS = ("action", "tool", "tool_name", "name", "function", "function_call", "tool_call")
_INPUT_KEYS = ("action_input", "tool_input", "arguments", "args", "parameters", "params", "input", "kwargs")
_ANSWER_KEYS = ("final_answer", "answer", "Final Answer", "最终答案")


def json_calls(value: Any, depth: int = 0) -> list[tuple[str, str]]:
    """Calls in a JSON value that stands for one, as (name, input): `{"action": ..., "action_input": ...}` and relatives.

    Objects become compact JSON text again, null becomes empty text. An object that names only an answer is a Finish.
    """
    if depth > 4:
        return []
    if isinstance(value, list):
        calls = [json_calls(item, depth + 1) for item in value]
        return [call for found in calls for call in found] if all(calls) else []
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("tool_calls"), list):
        return json_calls(value["tool_calls"], depth + 1)
    for key in _NAME_KEYS:
        name = value.get(key)
        if isinstance(name, dict):
            return json_calls(name, depth + 1)
        if isinstance(name, str) and name.strip():
            argument = next((value[k] for k in _INPUT_KEYS if k in value), None)
            if argument is None and not any(k in value for k in _INPUT_KEYS):
                known = {*_NAME_KEYS, "thought", "thoughts", "reasoning", "type", "id"}
                if set(value) - known:
                    continue
            return [(name.strip(), argument_text(argument))]
    for key in _ANSWER_KEYS:
        if isinstance(value.get(key), str):
            return [("Finish", value[key])]
    return []


def argument_text(argument: Any) -> str:
    """A JSON argument as the text that a tool's input is."""
    if argument is None:
        return ""
    return argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)


def json_thought(value: Any) -> str | None:
    """The thought that came inside a JSON action, if any."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        for key in ("thought", "thoughts", "reasoning"):
            if isinstance(value.get(key), str) and value[key].strip():
                return str(value[key]).strip()
    return None


def json_answer(text: str) -> str:
    """`{"answer": "Paris"}` as the argument of an ending: the text itself."""
    if text.startswith("{"):
        value, after = decode_json(text, 0, len(text))
        if isinstance(value, dict) and after == len(text) and len(value) == 1:
            key, answer = next(iter(value.items()))
            if key in (*_ANSWER_KEYS, "output") and isinstance(answer, str):
                return answer
    return text
