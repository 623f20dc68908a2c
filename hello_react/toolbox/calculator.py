"""A calculator for the model: arithmetic as people write it, exact where it can be, and nothing else.

Takes an expression, gives the result as text. It has its own small parser; nothing is ever run as Python.
Whole numbers, decimals and fractions are exact; roots, logarithms and angles (radians) have 15 digits. Size,
length and depth are bounded. A comparison gives true or false. No variables, units or words.

    >>> calculate("(2123 + 2321) * 312")
    '1386528'
    >>> calculate("0.1 + 0.2"), calculate("15% of 80"), calculate("√2")
    ('0.3', '12', '1.4142135623731')
    >>> calculate("8849 > 8611")
    'true'
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from fractions import Fraction
from typing import Union

from ..errors import ToolError

Number = Union[Fraction, float]  # exact, or rounded to a float

MAX_LENGTH = 1_000  # characters of an expression
MAX_DEPTH = 40  # brackets inside brackets
MAX_DIGITS = 4_000  # digits of any number, results in between included

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_FULL_WIDTH = {chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)}
_SIGNS = str.maketrans({**dict.fromkeys("×✕✖·⋅∙", "*"), **dict.fromkeys("÷∕⁄", "/"),
                        **dict.fromkeys("−–—", "-"), "、": ",", "π": "pi", **_FULL_WIDTH})
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"{_NUMBER}|(?:math\.)?[^\W\d]\w*|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|\*\*|//|[<>]=|\S", re.ASCII)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?(?![\d,])", re.ASCII)


def calculate(expression: str) -> str:
    """Calculate an arithmetic expression, such as (2123 + 2321) * 312, sqrt(2) or 15% of 80. Use it for every
    calculation; the input is the expression alone, without words or units.

    Signs: + - * / // ^ (or **) ! and × ÷ √ ² °. Functions: abs, ceil, cos, exp, factorial, floor, gcd, lcm,
    ln, log (natural, or log(x, base)), log2, log10, max, min, round (halves away from zero), sin, sqrt, sum,
    tan. Constants: pi, e. Two sides may be compared by < <= > >= (or ≤ ≥): the result is true or false.

    `%` is percent, unless a number, a name or a bracket follows: then it is modulo, as `mod` always is (both
    with the sign of the divisor). A percentage is added only to 1 or to another one: 200 + 10% is refused, as
    it may mean 220 or 200.1. A comma separates the values of a function that takes several; elsewhere it
    groups thousands. A currency sign is dropped if there is only one kind.

    Returns:
        The result: exact, else with 15 significant digits; of a comparison, true or false.

    Raises:
        ToolError: what is wrong with the expression, for the model.
    """
    if len(expression) > MAX_LENGTH:
        raise _error(f"the expression has more than {MAX_LENGTH:,} characters")
    text = expression.translate(_SIGNS).strip(" \t\r\n`'\"")
    text = re.sub(r"\s*=?\s*\??\s*\Z", "", text)
    text = re.sub(r"(?<=[\d)%])\s+[xX]\s+(?=[\d(.])", " * ", text)
    currencies = {sign for sign in text if unicodedata.category(sign) == "Sc"}
    if len(currencies) > 1:
        raise _error(f"it mixes the currencies {' and '.join(sorted(currencies))}")
    text = "".join(" " if sign in currencies else sign for sign in text)
    try:
        return _Parser(text).result()
    except ZeroDivisionError:
        raise _error("it divides by zero") from None
    except OverflowError:
        raise _error("a number in it is too large") from None


def _error(what: str) -> ToolError:
    return ToolError(f"Not calculated: {what}. Write an expression such as (2 + 3.5) * 4 or sqrt(2).")


class _Parser:
    """Reads and calculates in one pass: one method for each level of precedence, loosest first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.is_percent = False  # whether the term just read was a bare percentage

    def result(self) -> str:
        value = self.sum()
        if sign := self.take(*_COMPARISONS):
            text = str(_COMPARISONS[sign](_exact(value), _exact(self.sum()))).lower()
        else:
            text = _as_text(value)
        if self.next:
            raise self.unexpected()
        return text

    @property
    def next(self) -> str:
        return self.tokens[self.at][0]

    def take(self, *wanted: str) -> str:
        """The next token if it is one of `wanted` (and moves on), else ""."""
        token = self.next
        if token not in wanted:
            return ""
        self.at += 1
        return token

    def unexpected(self) -> ToolError:
        if not self.next:
            return _error("it ends too early")
        if self.next == ",":
            return _error("outside a function a comma groups thousands, as in 1,234; decimals have a point")
        before = self.tokens[self.at - 1][0] if self.at else ""
        if re.match(r"[\w.√(]", self.next) and re.search(r"[\w)\].!%°]\Z", before):
            return _error(f"there is no sign between {before!r} and {self.next!r} (write * to multiply)")
        return _error(f"{self.next!r} is not expected there")

    def sum(self) -> Number:
        value = self.product()
        percent = self.is_percent
        while sign := self.take("+", "-"):
            other = self.product()
            if self.is_percent and not percent and value != 1:
                raise _error("adding a percentage to a number can mean two things: "
                             "write 200 * (1 + 10%) for 10% more, 200 + 0.1 for the plain sum")
            percent = percent or self.is_percent
            value = _checked(_add(value, other if sign == "+" else -other))
        self.is_percent = False
        return value

    def product(self) -> Number:
        value = self.signed()
        while sign := self.take("*", "/", "//", "%", "mod", "of" if self.is_percent else "*"):
            other = self.signed()
            self.is_percent = False
            if sign in ("*", "of"):
                value = value * other
            elif sign == "/":
                value = value / other
            else:
                whole = Fraction(_exact(value) // _exact(other))
                value = whole if sign == "//" else _add(value, -whole * other)
            value = _checked(value)
        return value

    @contextmanager
    def nested(self) -> Iterator[None]:
        if self.depth == MAX_DEPTH:
            raise _error(f"more than {MAX_DEPTH} brackets or signs stand inside each other")
        self.depth += 1
        yield
        self.depth -= 1

    def signed(self) -> Number:
        if sign := self.take("+", "-"):
            with self.nested():
                value = self.signed()
            return -value if sign == "-" else value
        value = self.postfixed()
        if self.take("^", "**"):
            with self.nested():
                value = _power(value, self.signed())
            self.is_percent = False
        return value

    def postfixed(self) -> Number:
        value = self.operand()
        self.is_percent = False
        if self.take("!"):
            value = _factorial(value)
        if self.take("°"):
            value = math.radians(value)
        if re.fullmatch("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", self.next):
            exponent = self.next.translate(_SUPERSCRIPTS)
            if not re.fullmatch(r"-?\d+", exponent):
                raise self.unexpected()
            self.at += 1
            value = _power(value, Fraction(exponent))
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)][0]
        # `7 % -3` is modulo: the sign belongs to the number. `7% - 3` and `7%-3` take 3 from a percentage.
        signed = re.match(r"\s%\s*[+-](?=\S)", self.text[max(0, self.tokens[self.at][1] - 1):])
        if self.next == "%" and (
                following in ("of", "mod") or not (signed or re.match(r"[\w.(√]", following))):
            self.at += 1
            value = value / 100
            self.is_percent = True
        return value

    def operand(self) -> Number:
        token, start = self.tokens[self.at]
        if re.match(r"\.?\d", token, re.ASCII):
            self.at += 1
            return _number(token)
        if self.take("√"):
            with self.nested():
                return _sqrt(self.operand())
        if self.take("("):
            with self.nested():
                value = self.sum()
            self.close(")")
            return value
        name = token.lower().removeprefix("math.")
        if name in _CONSTANTS or name in _FUNCTIONS:
            self.at += 1
            return _CONSTANTS[name] if name in _CONSTANTS else self.call(name, start)
        if re.match(r"[^\W\d]", token) and name not in ("of", "mod"):
            raise _error(f"{token[:40]!r} is not known; known are {', '.join(_FUNCTIONS)}, pi and e")
        raise self.unexpected()

    def call(self, name: str, start: int) -> Number:
        if not self.take("("):
            raise _error(f"{name} needs its values in brackets, such as {name}(2)")
        values = self.arguments(")")
        written = self.text[start : self.tokens[self.at - 1][1]]
        grouped = re.search(r"\d,\d{3}(?!\d)", written) and re.search(r",\s", written)
        if grouped or re.search(r"\d,0\d\d(?!\d)", written):  # "012" is no number of its own
            raise _error(f"its commas may group thousands or separate values: inside {name}(...) "
                         "write numbers without thousands commas, as in sum(1234, 2500)")
        function, least, most = _FUNCTIONS[name]
        if not least <= len(values) <= most:
            raise _error(f"{name} takes {least}{f' to {most}' if least < most < MAX_LENGTH else ''}"
                         f"{' or more' if most == MAX_LENGTH else ''} value(s), not {len(values)}")
        try:
            return _checked(function(*values))
        except ValueError:
            raise _error(f"{name} is not defined there") from None

    def arguments(self, end: str) -> list[Number]:
        """Values up to `end`; those of a list in square brackets count one by one."""
        values: list[Number] = []
        with self.nested():
            while self.next != end:
                values += self.arguments("]") if self.take("[") else [self.sum()]
                if not self.take(","):
                    break
        self.close(end)
        return values

    def close(self, bracket: str) -> None:
        if not self.take(bracket):
            raise _error(f"a {bracket!r} is missing") if not self.next else self.unexpected()


def _tokens(text: str) -> list[tuple[str, int]]:
    """Each token and where it starts, with an empty one at the end. Knows which commas group thousands."""
    found: list[tuple[str, int]] = []
    in_function: list[bool] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        grouped = None if in_function and in_function[-1] else _GROUPED.match(text, position)
        match = grouped or _TOKEN.match(text, position)
        assert match is not None  # \S takes whatever is left
        token = match[0]
        if token in ("(", "["):
            in_function.append(token == "[" or bool(found and _takes_several(found[-1][0])))
        elif token in (")", "]") and in_function:
            in_function.pop()
        found.append((token, position))
        position = match.end()
    return [*found, ("", len(text))]


def _takes_several(word: str) -> bool:
    """Whether a comma after this name's bracket may separate values; sqrt(7,921) can only mean thousands."""
    function = _FUNCTIONS.get(word.lower().removeprefix("math."))
    return bool(re.match(r"[^\W\d]", word)) and (function is None or function[2] > 1)


def _number(token: str) -> Fraction:
    mantissa, _, exponent = token.replace(",", "").lower().partition("e")
    if abs(int(exponent or 0)) > MAX_DIGITS:
        raise OverflowError
    return Fraction(_checked(Fraction(mantissa.rstrip(".")) * Fraction(10) ** int(exponent or 0)))


def _checked(value: Number) -> Number:
    """`value`, if it is within bounds."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_DIGITS * math.log2(10):
        raise _error(f"a number in it has more than {MAX_DIGITS:,} digits")
    return value


def _exact(value: Number) -> Fraction:
    """A float as the decimal it stands for: 3.9999999999999996 is 4 for `floor` and `round`."""
    return Fraction(f"{value:.15g}") if isinstance(value, float) else value


def _add(left: Number, right: Number) -> Number:
    total = left + right
    if isinstance(total, float) and abs(total) < 4e-16 * abs(float(left)):
        return Fraction(0)  # what is left of sqrt(2)^2 - 2 is rounding
    return total


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits > 1 and bits * abs(exponent) > 2 * MAX_DIGITS * math.log2(10):
            raise _error(f"a power in it has more than {MAX_DIGITS:,} digits")
        return _checked(Fraction(base**exponent.numerator))
    if exponent == Fraction(1, 2):
        return _sqrt(base)
    if base < 0:
        raise _error("a root of a negative number is not real")
    return _checked(float(base) ** float(exponent))


def _sqrt(value: Number) -> Number:
    if value < 0:
        raise _error("a root of a negative number is not real")
    if isinstance(value, Fraction):
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root == value:
            return root
    return math.sqrt(value)


def _whole(value: Number, what: str) -> int:
    exact = _exact(value)
    if exact.denominator != 1:
        raise _error(f"{what} takes whole numbers")
    return exact.numerator


def _factorial(value: Number) -> Number:
    whole = _whole(value, "factorial")
    if whole < 0:
        raise _error("factorial takes no negative number")
    if whole > 1_500:
        raise _error(f"a factorial in it has more than {MAX_DIGITS:,} digits")
    return _checked(Fraction(math.factorial(whole)))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    places = _whole(digits, "round")
    if abs(places) > MAX_DIGITS:
        raise OverflowError
    scaled = _exact(value) * Fraction(10) ** places
    half_up = Fraction(math.floor(abs(scaled) + Fraction(1, 2)))
    return (half_up if scaled > 0 else -half_up) / Fraction(10) ** places


def _ln(value: Number) -> float:
    if 0.5 < value < 2:
        return math.log1p(value - 1)
    exact = Fraction(value)  # two logarithms, since no float may hold it
    return math.log(exact.numerator) - math.log(exact.denominator)


def _log(value: Number, base: Number | None = None) -> float:
    return _ln(value) if base is None else _ln(value) / _ln(base)


def _tan(angle: Number) -> float:
    if abs(math.cos(angle)) < 1e-15:
        raise ValueError
    return round(math.tan(angle), 15)


def _sum(*values: Number) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = _checked(_add(total, value))
    return total


def _gcd(*values: Number) -> Number:
    return Fraction(math.gcd(*(_whole(value, "gcd") for value in values)))


def _lcm(*values: Number) -> Number:
    return Fraction(math.lcm(*(_whole(value, "lcm") for value in values)))


_COMPARISONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt, "<=": operator.le, "≤": operator.le,
    ">": operator.gt, ">=": operator.ge, "≥": operator.ge,
}
_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}
# Name: function, least and most number of values. Angles a hair from a multiple of pi give 0, hence round.
_FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "abs": (abs, 1, 1),
    "ceil": (lambda value: Fraction(math.ceil(_exact(value))), 1, 1),
    "cos": (lambda value: round(math.cos(value), 15), 1, 1),
    "exp": (math.exp, 1, 1),
    "factorial": (_factorial, 1, 1),
    "floor": (lambda value: Fraction(math.floor(_exact(value))), 1, 1),
    "gcd": (_gcd, 1, MAX_LENGTH),
    "lcm": (_lcm, 1, MAX_LENGTH),
    "ln": (_ln, 1, 1),
    "log": (_log, 1, 2),
    "log2": (lambda value: _log(value, Fraction(2)), 1, 1),
    "log10": (lambda value: _log(value, Fraction(10)), 1, 1),
    "max": (lambda *values: max(values), 1, MAX_LENGTH),
    "min": (lambda *values: min(values), 1, MAX_LENGTH),
    "round": (_round, 1, 2),
    "sin": (lambda value: round(math.sin(value), 15), 1, 1),
    "sqrt": (_sqrt, 1, 1),
    "sum": (_sum, 1, MAX_LENGTH),
    "tan": (_tan, 1, 1),
}


def _as_text(value: Number) -> str:
    """Decimals of up to 30 places exactly; all else with 15 digits, plain if of moderate size."""
    if isinstance(value, float):
        return _decimal_text(Decimal(f"{value:.14e}"), -6, 15)
    whole_digits = len(str(abs(value.numerator) // value.denominator))
    lowest, highest = -6, 30
    if 10**30 % value.denominator == 0:
        digits, lowest, highest = whole_digits + 30, -30, whole_digits
    elif whole_digits > highest:
        digits = 15
    else:
        digits = max(15, whole_digits + 2)
    decimal = Context(prec=digits).divide(Decimal(value.numerator), Decimal(value.denominator))
    return _decimal_text(decimal, lowest, highest)


def _decimal_text(value: Decimal, lowest: int, highest: int) -> str:
    """`value` without trailing zeros; plain if its first digit's exponent is from `lowest` to `highest`."""
    if not value:
        return "0"
    form = "f" if lowest <= value.adjusted() <= highest else "e"
    mantissa, mark, exponent = format(value, form).partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return mantissa + mark + exponent
