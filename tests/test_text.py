"""The helpers for text from outside."""

import dataclasses
import re

import pytest

from hello_react.text import (
    argument_end,
    clip,
    closing_bracket,
    estimate_tokens,
    outside_fences,
    past,
    printable,
    readable,
    redact,
    sendable,
    squeeze,
    unquote,
)


@pytest.mark.parametrize(("text", "inside"), [
    ("[a]", "a"),
    ("[a[b]c] d]", "a[b]c"),
    ("[" * 300 + "]" * 300, "[" * 299 + "]" * 299),
    ("(" * 70 + "x" + ")" * 70, "(" * 69 + "x" + ")" * 69),
    ("[a", None),
    ("[[a]", None),
    ('["a ] b"]', '"a ] b"'),
    ("['a ] b']", "'a ] b'"),
    ('[s = "["]', 's = "["'),
    ('["a [b"]', '"a [b"'),
    ('["[" + "]"]', '"[" + "]"'),
    ('[")"]', '")"'),
    ("[it's [b] o'clock]", "it's [b] o'clock"),
    ("[a'b]", "a'b"),
    ('["a" ] b', '"a" '),
    ('[5" wide] "', '5" wide'),
    ('["a\n] b"]', '"a\n'),
    (r'["a \" ] b"]', r'"a \" ] b"'),
    (r"[\[x]'s]", r"\[x]'s"),
    ('["x', None),
    ('[[ "x" y]', None),
    ('[" \\"', None),
    ('["(" ', None),
    ("(a(b)）", "a(b)"),
    ("(a（b）)", "a（b）"),
    ("（a)", "a"),
    ("（a）", "a"),
    ("{a{b}}", "a{b}"),
    ("【a【b】】", "a【b】"),
    ("［a］", "a"),
    ("【a]", None),
])
def test_closing_bracket(text, inside):
    close = closing_bracket(text, 0)
    assert (None if close is None else text[1:close]) == inside


def test_a_string_that_is_too_long_is_no_string():
    text = '["' + "x" * 200_000 + '] "]'
    assert closing_bracket(text, 0) == len(text) - 4


@pytest.mark.parametrize(("text", "end"), [
    ("[a] b", 2), ("[a]]", 2), ("[a] ]", 2), ("[a] b]", None), ("[a] [b]", 2), ("[a", None), ("(a) b)", 2),
])
def test_argument_end(text, end):
    assert argument_end(text, 0, [len(text)]) == end


def test_words_after_the_next_label_do_not_count():
    assert argument_end("[a] b\nAction: c]", 0, [6, 16]) == 2


def test_outside_fences():
    text = "a\n```\na\n```\na ~~~\n~~~\na"
    assert [match.start() for match in outside_fences(text, re.finditer("a", text))] == [0, 12]
    assert len(list(outside_fences("a" * 6_000, re.finditer("a", "a" * 6_000)))) == 5_000


def test_past():
    assert past(re.compile("a+"), "baac", 1) == 3
    assert past(re.compile("a+"), "baac", 0) == 0
    assert past(re.compile("a+"), "baac", 1, 2) == 2


@pytest.mark.parametrize(("text", "bare"), [
    ('"a"', "a"), (" 'a' ", "a"), ("“a”", "a"), ("‘a’", "a"), ('"a" "b"', '"a" "b"'), ('"', '"'),
    ("'a\"", "'a\""),
    ('"a\\"', '"a\\"'), ('"a \\" b"', 'a \\" b'), ("a", "a"), ('""', ""), ("`a`", "`a`"), ("", ""),
])
def test_unquote(text, bare):
    assert unquote(text) == bare


def test_squeeze():
    assert squeeze("Web-Search") == squeeze("web search") == squeeze("WEB_SEARCH") == "websearch"


def test_sendable_and_printable():
    assert sendable("a\ud83d\x00b") == "a\ufffdb"
    assert printable("a\r\nb\x1b[2J\u202e\ud83d\tc") == "a\nb\\x1b[2J\\u202e\ufffd\tc"


def test_clip():
    assert clip("abc", 3) == "abc"
    assert clip("a" * 2000, 5) == "aaaaa\n[cut: 5 of 2,000 characters shown]"


def test_estimate_tokens():
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcde") == 2
    assert estimate_tokens("你好 abcd") == 4


def test_redact():
    assert redact("GET /?q=a&api_key=0123456789") == "GET /?q=a&api_key=[key]"
    assert redact("Authorization: Bearer abcdef123") == "Authorization: Bearer [key]"
    assert redact("sk-abcdef123 and mysecret, short", ("mysecret", "sho")) == "sk-[key] and [key], short"


@dataclasses.dataclass
class Point:
    x: int


class Model:
    def model_dump(self):
        return {"a": 1}


def loop():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(("value", "text"), [
    (None, "The tool gave no result."), ("", "The tool gave an empty text."), (b"a\xff", "a\ufffd"), (5, "5"),
    (Point(1), '{"x": 1}'), (Point, str(Point)), (Model(), '{"a": 1}'), ({1}, "[1]"), ((1, "é"), '[1, "é"]'),
    ({(1, 2): 3}, "{(1, 2): 3}"), (loop(), "[[...]]"), ({"a": Point}, '{"a": "' + str(Point) + '"}'),
])
def test_readable(value, text):
    assert readable(value) == text
