"""The helpers for text from outside."""

import dataclasses
import re
import time

import pytest

from hello_react.text import (
    argument_end,
    broken_off,
    clip,
    closing_bracket,
    estimate_tokens,
    fences,
    in_words,
    is_blank,
    json_text,
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
    ('["""a ] b\n[ c""" + x]', '"""a ] b\n[ c""" + x'),
    ('[5" wide], b[6" wide]', '5" wide'),
    ("[the '90s], b[the '80s]", "the '90s"),
    ("[the 'n], b[the 'n]", None),
    ("[s = '''\nit's ]\n''']", "s = '''\nit's ]\n'''"),
    ('["""]', '"""'),
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
    ("[(0, 1].]", None), ("[(0, 1]; [2, 3)]", None), ("[(0, 1] b", 6), ("[`]`.]", None), ("[x in ]0, 1[]", None),
    ("[]0, 1[]", None), ("[a ] b [ c]", None), ("[a ] and Search[b ]", 3), ("[ a ] b [c]", 4), ("[a\n] b [c]", 3), ("[1  # a] b [ c\n2]", None),
    ("[:-(] [1]", 4), ("[(a] [b]", 3), ("[(0, 1] and [2, 3)]", None), ("[(0, 1]]", None),
    ("[http://a] b [c]", 9), ("[a]和Search[b]", 2),
])
def test_argument_end(text, end):
    assert argument_end(text, 0, [len(text)]) == end


def test_words_after_the_next_label_do_not_count():
    assert argument_end("[a] b\nAction: c]", 0, [6, 16]) == 2


def test_outside_fences():
    text = "a\n```\na\n```\na ~~~\n~~~\na"
    assert [match.start() for match in outside_fences(text, re.finditer("a", text))] == [0, 12]
    assert len(list(outside_fences("a" * 6_000, re.finditer("a", "a" * 6_000)))) == 5_000


@pytest.mark.parametrize(("text", "turns"), [
    ("a: ```py\nb\n```\nc", [3, 11]), ("a: ```\nb```\nc", [3, 8]), ("a ```\nb", []), ("a ```b``` c\nd", []),
    ("```b```\n", []), ("```\na ```py\n```", [0, 12]), ("```\na", [0]), ("a ```b c\nd```\ne", []), ("~~~\na\n~~~", [0, 6]),
    ("a ~~~\nb", []), ("a ````\nb\n```\n", [9]),
])
def test_fences(text, turns):
    assert [fence.start() for fence in fences(text)] == turns


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


@pytest.mark.parametrize(("text", "whole"), [
    ("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00\ud83d", "\ufffd\ufffd"), ("\ud83dé", "\ufffdé"),
    ("\ufeff\ud83d\ude00 😀", "\ufeff😀 😀"), ("plain", "plain"),
])
def test_halves_of_a_sign_are_joined_and_a_half_alone_is_replaced(text, whole):
    assert sendable(text) == printable(text) == whole


@pytest.mark.parametrize(("kind", "reasons"), [
    ("failure", "error ERROR network_error abort cancelled USER_CANCEL timeout insufficient_system_resource "
                "malformed_function_call"),
    ("filter", "content_filter sensitive SAFETY refusal guardrail_intervened PROHIBITED_CONTENT RECITATION SPII"),
    ("length", "length max_tokens max_output_tokens max_new_tokens max_length model_length token_limit "
               "model_context_window_exceeded repetition_truncation"),
    ("", "stop tool_calls function_call tool_use eos eos_token stop_sequence end_turn COMPLETE normal none"),
])
def test_broken_off(kind, reasons):
    assert {reason: broken_off(reason) for reason in reasons.split()} == dict.fromkeys(reasons.split(), kind)
    assert broken_off("") == ""


def test_clip():
    assert clip("abc", 3) == "abc"
    assert clip("a" * 2000, 5) == "aaaaa\n[cut: 5 of 2,000 characters shown]"


def test_estimate_tokens():
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcde") == 2
    assert estimate_tokens("你好 abcd") == 4
    assert estimate_tokens("สวัสดี") == 6
    assert estimate_tokens("مرحبا") == 4
    assert estimate_tokens("🙂🙂🙂") == 4


def test_redact():
    assert redact("GET /?q=a&api_key=0123456789") == "GET /?q=a&api_key=[key]"
    assert redact("Authorization: Bearer abcdef123") == "Authorization: Bearer [key]"
    assert redact("sk-abcdef123 and mysecret, short", ("mysecret", "sho")) == "sk-[key] and [key], short"


@pytest.mark.parametrize(("text", "clean"), [
    ("access_key=abcdef123456", "access_key=[key]"),
    ("client_secret=abcdef123456&q=Oslo", "client_secret=[key]&q=Oslo"),
    ("auth_token: abcdef123456", "auth_token: [key]"),
    ("AWS_SECRET_ACCESS_KEY=abcdef123456", "AWS_SECRET_ACCESS_KEY=[key]"),
    ("clientSecret=abcdef123456", "clientSecret=[key]"),
    ("Authorization: Basic YWxhZGRpbjpvcGVu", "Authorization: Basic [key]"),
    ("authorization: Token abcdef123456", "authorization: Token [key]"),
    ("{'Authorization': 'abcdef123456'}", "{'Authorization': '[key]'}"),
    ("get https://user:pw@example.com/a", "get https://user:[key]@example.com/a"),
    ("blob?se=2030&sig=abc%2Fdef123", "blob?se=2030&sig=[key]"),
    ("/r?u=API_KEY%3Dabcdef123456&x=1", "/r?u=API_KEY%3D[key]&x=1"),
    (r'{"said": "{\"api_key\": \"abcdef123456\"}"}', r'{"said": "{\"api_key\": \"[key]\"}"}'),
    ("Search[x api_key=abcdef123456] then", "Search[x api_key=[key]] then"),
    ("password:\nnothing follows", "password:\nnothing follows"),
    ("bearer\nnothing follows", "bearer\nnothing follows"),
    ("monkey: bananas, turkey=Ankara", "monkey: bananas, turkey=Ankara"),
    ("https://example.com:8080/@user", "https://example.com:8080/@user"),
])
def test_redact_knows_what_a_key_looks_like(text, clean):  # V04
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(("text", "clean"), [
    ("key sk-abcdef123456 refused", "key [key] refused"),
    ("Authorization: Bearer sk-abcdef123456", "Authorization: Bearer [key]"),
    ("sk-abcdef1...", "[key]..."),
    ("sk-abcde and sk-abcd", "[key] and sk-abcd"),
    ("another one, sk-abcdeXYZ_0123, too", "another one, [key], too"),
    ("?q=a%2Fb%2Bc%3D9&x, a/b%2Bc%3D9, a/b+c=9", "?q=[key]&x, [key], [key]"),
    ("a/b+c=", "a/b+c="),
    ("longest-secret-of-all", "[key]"),
])
def test_redact_takes_known_secrets_whole_and_cut(text, clean):  # V04
    assert redact(text, ("sk-abcdef123456", "a/b+c=9", "longest-", "longest-secret-of-all")) == clean


def test_redact_takes_linear_time():
    began = time.perf_counter()
    for part in ("key=", "api_", "://a", "authorization: basic ", "sk-abcde", "a", "\\", "key\\\"", "%3D", "_"):
        redact(part * 50_000, ("sk-abcdef123456",))
    assert time.perf_counter() - began < 20


@dataclasses.dataclass
class Point:
    x: int


class Model:
    def model_dump(self):
        return {"a": 1}


class Odd:
    def __str__(self):
        raise SystemExit

    def __repr__(self):
        return "an odd one"


def loop():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(("value", "text"), [
    (None, "The tool gave no result."), ("", "The tool gave an empty text."), (b"a\xff", "a\ufffd"), (5, "5"),
    (Point(1), '{"x": 1}'), (Point, str(Point)), (Model(), '{"a": 1}'), ({1}, "[1]"), ((1, "é"), '[1, "é"]'),
    (Odd(), "Odd"), ([Odd()], "[an odd one]"), ({(1, 2): 3}, "{(1, 2): 3}"), (loop(), "[[...]]"), ({"a": Point}, '{"a": "' + str(Point) + '"}'),
])
def test_readable(value, text):
    assert readable(value) == text


def test_ctrl_c_inside_a_foreign_method_is_not_swallowed():
    def stop(value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_words(1, stop)
    assert in_words(1, len) == "1"


@pytest.mark.parametrize("text", ["", " \n", "\0", "\0\u200b", "\ufeff \u2060", "\u2003\x85\u2028"])
def test_what_is_blank(text):
    assert is_blank(text)
    assert readable(text) == readable(text.encode()) == "The tool gave an empty text."
    assert not is_blank(f"{text}0")


@pytest.mark.parametrize("text", ["\ufffd", "\udc00\0"])
def test_what_stands_for_a_lost_sign_is_no_answer(text):
    assert is_blank(text)
    assert not is_blank(f"{text}0")


def test_json_text():
    given = [None, "", '{"a": 1}', {"a": "世"}, 5, {"a": {1}}]
    assert [json_text(value) for value in given] == ["", "", '{"a": 1}', '{"a": "世"}', "5", '{"a": "{1}"}']
