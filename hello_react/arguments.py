"""From the text between the brackets to a function's arguments, by its own signature (chapters 02 and 08).

One parameter takes the text as it stands (without quotes around it, or an object that names it); several
take a JSON object (`{"a": 1, "b": 2}`), keywords (`a=1, b=2`), values in order (`1, 2`), these before those
(`1, b=2`) or, where all but one have defaults, plain text; none takes empty text. A native tool call brings
an object already. Types are checked by pydantic, which is imported only when a parameter is more than text.

    >>> bind("add", parameters(lambda a, b: a + b), '{"a": 1, "b": 2}')
    ([], {'a': 1, 'b': 2})
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from .dialects import decode_json
from .errors import ToolError
from .text import clip, closing_bracket, in_words, sendable

_NO_INPUT = {"", "{}", "none", "null", "()"}


class BadInput(ToolError):
    """The model's input does not fit the tool; the text says what was expected."""


REQUIRED = object()
"""Stands for the default of a parameter that has none."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool's function."""

    name: str
    annotation: Any = str
    default: Any = REQUIRED
    by_position: bool = False
    description: str = ""
    variadic: bool = False
    """Whether it stands for any number of values, as `*numbers` does; it takes a list of them then."""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_text(self) -> bool:
        """Whether it takes any text, and no other form of input is meant: also `str | None` and the like."""
        return _bare(self.annotation) in _TEXT_TYPES

    def schema(self) -> dict[str, Any]:
        """The JSON schema of this parameter."""
        if self.annotation in _TEXT_TYPES:
            schema: dict[str, Any] = {"type": "string"} if self.annotation is str else {}
        else:
            adapter = _adapter(self)
            try:
                schema = adapter.json_schema()
            except Exception as error:
                raise _unfit(self, error) from error
        default = self.default.value if isinstance(self.default, Enum) else self.default
        if not self.required and default is not None and _has_json(default):
            schema.setdefault("default", default)
        return schema

    def check(self, value: Any) -> Any:
        """`value` as this parameter's type.

        Raises:
            ValueError: it does not fit; the text says why.
        """
        if isinstance(value, str):
            value = sendable(value)
        if self.annotation is str:
            if isinstance(value, (dict, list)) or value is None:
                raise ValueError("should be text")
            return value if isinstance(value, str) else json.dumps(value)
        if self.annotation in _TEXT_TYPES:
            return value
        from pydantic import ValidationError

        adapter = _adapter(self)
        try:
            return _listed_out(adapter.validate_python(value))
        except ValidationError as error:
            first = error.errors()[0]
        # Strict types take from JSON what they refuse from Python; some models put the JSON into quotes, and
        # write a text of digits as a number.
        texts = [json.dumps(value)] if _has_json(value) else []
        texts += [value] if isinstance(value, str) else []
        ways = [partial(adapter.validate_json, text) for text in texts]
        if isinstance(value, (int, float)):
            ways.append(partial(adapter.validate_python, json.dumps(value)))
        if self.variadic:  # one value alone
            ways.append(partial(adapter.validate_python, [value]))
        for way in ways:
            with contextlib.suppress(ValueError):  # pydantic's error is one
                return _listed_out(way())
        where = "".join(f"[{part!r}]" for part in first["loc"])
        raise ValueError(f"{where} {first['msg'][:1].lower()}{first['msg'][1:]}".strip())


_TEXT_TYPES = (str, Any, inspect.Parameter.empty)


def _bare(annotation: Any) -> Any:
    """A type without what `Annotated` and `| None` add to it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _bare(annotation.__origin__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def _listed_out(value: Any) -> Any:
    """All items of the iterator that pydantic gives for `Iterable[int]`: it checks each when it is taken."""
    return list(value) if isinstance(value, Iterator) else value


def _adapter(parameter: Parameter) -> Any:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(parameter.annotation)
    except Exception as error:  # pydantic raises many kinds, and runs the type's own methods
        raise _unfit(parameter, error) from error


def _unfit(parameter: Parameter, error: Exception) -> ToolError:
    old = "TypedDict" in in_words(error)
    return ToolError(f"The parameter {parameter.name!r} has a type that text can't be turned into: "
                     f"{in_words(parameter.annotation, repr)}. Use str, int, float, bool, list, dict, an "
                     "Enum or a pydantic model."
                     f"{' Before Python 3.12 take TypedDict from typing_extensions.' if old else ''}")


def _has_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def unwrapped(function: Any) -> Any:
    """The function inside of `functools.partial`s."""
    while isinstance(function, partial):
        function = function.func
    return function


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a function, in order. `*numbers: int` takes a list; a `*more` without a type that
    follows others, `**more`, and what a `functools.partial` has filled in, are left out.

    Raises:
        ToolError: one of them has a type that can't come from text.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C tell nothing of their parameters
        return (Parameter("input", by_position=True),)
    target: Any = unwrapped(function)
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = target.__call__
    found: list[Parameter] = []
    filled = function.keywords if isinstance(function, partial) else {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD or name in filled:
            continue
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        annotation = _resolved(parameter.annotation, target)
        if parameter.kind is parameter.VAR_POSITIONAL:
            if annotation in (Any, inspect.Parameter.empty):
                if found:
                    continue
                return (Parameter(name, by_position=True),)
            found = [replace(one, by_position=True) for one in found]
            annotation, default = list.__class_getitem__(annotation), () if found else REQUIRED
        notes: list[str] = []
        if typing.get_origin(annotation) is typing.Annotated:
            notes = [note for note in annotation.__metadata__ if isinstance(note, str)]
            if len(notes) == len(annotation.__metadata__):
                annotation = annotation.__origin__
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        one = Parameter(name, annotation, default, variadic or parameter.kind is parameter.POSITIONAL_ONLY,
                        " ".join(notes) or _described(inspect.getdoc(target) or "", name), variadic)
        if annotation not in (str, int, float, bool, Any, inspect.Parameter.empty):
            one.schema()
        found.append(one)
    if [one.kind for one in signature.parameters.values()] == [inspect.Parameter.VAR_KEYWORD]:
        raise ToolError("A tool that takes only **options can't be called: name its parameters.")
    return tuple(found)


def _resolved(annotation: Any, target: Any) -> Any:
    """The type that an annotation of `target`, a function or class, stands for, also one written as text;
    `empty` if that can't be told."""
    function = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    names = getattr(function, "__globals__", None) or vars(inspect.getmodule(target) or types)
    alone = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(alone, names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001  an annotation may be any text: it is evaluated here
        return inspect.Parameter.empty


def _described(doc: str, name: str) -> str:
    """What a docstring says of a parameter: `name: ...` in an indented list, or `:param name: ...`."""
    found = re.search(rf"^(?:[ \t]{{1,20}}\**|:param (?:\w{{1,40}} )?){name}\b(?:[ ]?\([^()\n]{{0,80}}\))?:"
                      r"[ \t]*(\S.*(?:\n[ \t]{6,40}\S.*)*)", doc, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def json_schema(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, as native tool calls need it: nothing in it refers to another
    place, unless a type holds itself."""
    properties: dict[str, Any] = {}
    recursive: dict[str, Any] = {}
    for parameter in parameters:
        schema = parameter.schema()
        if parameter.annotation is inspect.Parameter.empty:  # text if it is alone, else its default may tell
            by_default = str if len(parameters) == 1 and parameter.required else type(parameter.default)
            schema |= {"type": _JSON_TYPES[by_default]} if by_default in _JSON_TYPES else {}
        definitions = schema.pop("$defs", {})
        inlined, whole = _inlined(schema, definitions, ())
        if not whole:
            taken = {name: f"{name}_{parameter.name}" for name, one in definitions.items()
                     if recursive.get(name, one) != one}  # another class of that name
            inlined = _renamed(inlined, taken)
            recursive |= {taken.get(name, name): _renamed(one, taken) for name, one in definitions.items()}
        properties[parameter.name] = inlined
        if parameter.description:
            inlined.setdefault("description", parameter.description)
    required = [parameter.name for parameter in parameters if parameter.required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {}),
            **({"$defs": recursive} if recursive else {})}


def _inlined(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> tuple[Any, bool]:
    """`schema` with its references replaced by what they refer to, and whether that was possible for all."""
    if isinstance(schema, list):
        parts = [_inlined(part, definitions, inside) for part in schema]
        return [part for part, _ in parts], all(whole for _, whole in parts)
    if not isinstance(schema, dict):
        return schema, True
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in inside:
        return schema, False
    if name in definitions:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        inlined, whole = _inlined(definitions[name], definitions, (*inside, name))
        return {**inlined, **beside}, whole
    if isinstance(schema.get("oneOf"), list):  # its `discriminator` only names definitions
        schema = {key: part for key, part in schema.items() if key != "discriminator"}
    pairs = {key: _inlined(part, definitions, inside) for key, part in schema.items()}
    return {key: part for key, (part, _) in pairs.items()}, all(whole for _, whole in pairs.values())


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """`schema` with references to other names."""
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: _renamed(part, names) for key, part in schema.items()}
    if isinstance(name := schema.get("$ref"), str):
        place, slash, name = name.rpartition("/")
        renamed["$ref"] = place + slash + names.get(name, name)
    return renamed


def usage(parameters: tuple[Parameter, ...]) -> str:
    """One sentence on how the input is written; empty for the plain case, one text."""
    if not parameters:
        return "Takes no input: leave the brackets empty."
    if len(parameters) == 1:
        return "" if parameters[0].is_text else f"Input: {_type_word(parameters[0])}."
    return f"Input: a JSON object with {_listed(parameters)}."


def _listed(parameters: tuple[Parameter, ...]) -> str:
    listed = []
    for parameter in parameters:
        optional = "" if parameter.required else ", optional"
        listed.append(f'"{parameter.name}" ({_type_word(parameter)}{optional})')
    return ", ".join(listed)


def _type_word(parameter: Parameter) -> str:
    schema = parameter.schema()
    return _in_words(_inlined(schema, schema.get("$defs", {}), ())[0])


_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
          "object": "object"}
_SAMPLES = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "null": None}
_TEXT_SAMPLES = {"date": "2026-01-31", "date-time": "2026-01-31T09:30:00", "time": "09:30:00",
                 "duration": "PT1H30M", "uuid": "123e4567-e89b-12d3-a456-426614174000"}
"""Of texts in a form of their own, by the name that JSON schemas have for it."""


def _in_words(schema: Mapping[str, Any]) -> str:
    if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in choices)
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_in_words(part) for part in parts if part.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_in_words(schema['items'])}" if schema.get("items") else "list"
    if "properties" in schema:
        return "object with " + ", ".join(f'"{name}"' for name in schema["properties"])
    if "$ref" in schema:  # a type that holds itself
        return "the same"
    if (form := schema.get("format")) in _TEXT_SAMPLES:
        return f"{form} such as {_TEXT_SAMPLES[form]}"
    return _WORDS.get(str(schema.get("type")), "text")


def _example(parameters: tuple[Parameter, ...]) -> str:
    schemas = json_schema(parameters)["properties"]
    values = {one.name: _sample(schemas[one.name]) for one in parameters if one.required}
    return json.dumps(values, ensure_ascii=False)


def _sample(schema: Mapping[str, Any]) -> Any:
    """A value of this schema; of an object, with the parts that it must have."""
    if "enum" in schema:
        return schema["enum"][0]
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return _sample(parts[0])
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {name: _sample(properties.get(name, {})) for name in schema.get("required", ())}
    if "$ref" in schema:  # a type that holds itself
        return {}
    text = _TEXT_SAMPLES.get(schema.get("format", ""), "text")
    return schema.get("const", _SAMPLES.get(str(schema.get("type")), text))


def bind(tool: str, parameters: tuple[Parameter, ...],
         input: str | Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from the input: text, or the object of a native call.

    Raises:
        BadInput: the input does not fit; the message is for the model.
    """
    native = not isinstance(input, str)
    values = from_text(tool, parameters, input) if isinstance(input, str) else input
    problems = [f"{name!r} is unknown" for name in values if name not in {p.name for p in parameters}]
    args: list[Any] = []
    skipped: list[Any] = []  # defaults that keep the places of the positional ones behind them
    kwargs: dict[str, Any] = {}
    for parameter in parameters:
        value = values.get(parameter.name)
        left_out = parameter.name not in values
        null = value is None and not parameter.required  # many models fill in every parameter
        if null and parameter.annotation is inspect.Parameter.empty:
            left_out = True
        if not left_out:
            try:
                value = parameter.check(value)
            except ValueError as error:
                left_out = True
                if not null:
                    problems.append(f"{parameter.name!r} {error}")
        elif parameter.required:
            problems.append(f"{parameter.name!r} is missing")
        if left_out:
            skipped += [parameter.default] if parameter.by_position else []
        elif parameter.by_position:
            values_here: Any = value if parameter.variadic else [value]
            args += [*skipped, *values_here]
            skipped = []
        else:
            kwargs[parameter.name] = value
    if problems:
        raise BadInput(_expected(tool, parameters, "; ".join(problems), native))
    return args, kwargs


def from_text(tool: str, parameters: tuple[Parameter, ...], text: str) -> dict[str, Any]:
    """The values by name in the text between the brackets, not checked yet.

    Raises:
        BadInput: they can't be told.
    """
    if parameters:
        return _one(parameters[0], text) if len(parameters) == 1 else _several(tool, parameters, text)
    if text.strip().casefold() not in _NO_INPUT:
        raise BadInput(f"{tool} takes no input. Write {tool}[] with nothing between the brackets.")
    return {}


def from_json(tool: str, parameters: tuple[Parameter, ...], text: str) -> dict[str, Any]:
    """The values by name in the JSON text of a native call, not checked yet; null stands for none.

    An object that was written as a JSON string is decoded once more; some models do that.

    Raises:
        BadInput: it is no JSON object.
    """
    try:
        value = json.loads(text, strict=False, parse_constant=no_constant)
        if isinstance(value, str):
            value = json.loads(value.strip() or "null", strict=False, parse_constant=no_constant)
    except (ValueError, RecursionError):
        problem = f"its arguments are not complete JSON: {clip(text, 200)!r}"
        raise BadInput(_expected(tool, parameters, problem, native=True)) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        problem = f"its arguments are no JSON object: {clip(text, 200)!r}"
        raise BadInput(_expected(tool, parameters, problem, native=True))
    return value


def no_constant(name: str) -> Any:
    """For `parse_constant` of `json.loads`: NaN and Infinity are no JSON."""
    raise ValueError(name)


def _expected(tool: str, parameters: tuple[Parameter, ...], problem: str, native: bool = False) -> str:
    if native:
        names = f"a JSON object with {_listed(parameters)}, such as " if parameters else ""
        return f"{tool} was not run: {problem}. Call it with {names}{_example(parameters)}."
    example = f" For example: {tool}[{_example(parameters)}]" if len(parameters) > 1 else ""
    return f"{tool} was not run: {problem}. {usage(parameters)}".rstrip() + example


def _one(parameter: Parameter, text: str) -> dict[str, Any]:
    """The only parameter takes the text as it stands, or the value of an object that has just its name as a
    key.
    """
    value = _json(text)
    if isinstance(value, dict) and list(value) == [parameter.name]:
        return value
    keywords = _keywords(text)
    if keywords and list(keywords) == [parameter.name]:
        return keywords
    if not parameter.is_text and isinstance(value, (dict, list)):
        return {parameter.name: value}
    if not text and not parameter.required:
        return {}
    return {parameter.name: text}


_WRAPPED = re.compile(r"\s{0,8}(`{1,3}|(?=json\s{0,8}\n))(?:\w{1,12}\s{1,8}|\s{0,8})(?=[\[{])"
                      r"(.*?)\s{0,8}\1\s{0,8}\Z", re.DOTALL)
_STRAIGHT = str.maketrans("“”", '""')
_MEANT_AS_SEVERAL = (  # NAME stands for the name of any parameter
    r"```",
    r"[\[{]\s*[\"'“‘\[{]",
    r"\{\s*NAME\s*[:：=]",
    r"\(\s*[\"'“‘][^\"'“”‘’\n]*[\"'”’]\s*[,，]",  # `("a", ...)`, but not `("a" or "b")`
    r"\(?\s*NAME\s*=[^=]",
    r"[\"'“‘]NAME[\"'”’]\s*[:：]",
    r"NAME\s*[:：].*[,;，；\n]\s{0,8}NAME\s{0,8}[:：]",
    r"[^()\[\]{}\n]{1,200}[,，]\s{0,8}NAME\s{0,8}=[^=]",
)


def _several(tool: str, parameters: tuple[Parameter, ...], text: str) -> dict[str, Any]:
    wrapped = _WRAPPED.match(text)
    inner = wrapped[2] if wrapped else text
    for form in dict.fromkeys((inner, inner.translate(_STRAIGHT))):
        values = _by_name(parameters, form)
        if values is not None:
            return values
    plain = _plain(parameters)
    if plain and not plain.required and not text.strip():
        return {}
    # What was meant as an object, as keywords or as values in order is no plain text.
    name = "|".join(re.escape(parameter.name) for parameter in parameters)
    meant = re.compile(rf"\s*(?:{'|'.join(_MEANT_AS_SEVERAL)})".replace("NAME", f"(?:{name})"), re.DOTALL)
    if plain and not meant.match(text) and not meant.match(inner):
        return {plain.name: text}
    raise BadInput(_expected(tool, parameters, "its input is not a JSON object"))


def _plain(parameters: tuple[Parameter, ...]) -> Parameter | None:
    """The parameter that plain text is meant for, as all others have defaults; None if two have none."""
    required = [parameter for parameter in parameters if parameter.required]
    return None if len(required) > 1 else (*required, *parameters)[0]


_IN_ORDER = re.compile(r"\s*(?:[\"'\[{]|(?:true|false|null|-?\d[\d.eE+-]*)\s*,)", re.IGNORECASE)


def _by_name(parameters: tuple[Parameter, ...], text: str) -> dict[str, Any] | None:
    """The values in an object, in keywords or in order; None if the text is none of these."""
    names = [parameter.name for parameter in parameters]
    value, text = _json(text), text.strip()
    if isinstance(value, dict):
        return value
    if text.startswith("(") and closing_bracket(text, 0) == len(text) - 1:
        text = text[1:-1]
    keywords = _keywords(text, names)
    if keywords and set(keywords) <= set(names):
        return keywords
    plain = _plain(parameters)
    if plain is parameters[0] and isinstance(value, list) and _is_one_value(plain, value):
        return {plain.name: value}
    listed = value if isinstance(value, list) else _json(f"[{text}]") if _IN_ORDER.match(text) else None
    least = max(sum(one.required for one in parameters), 1 if isinstance(value, list) else 2)
    if isinstance(listed, list) and least <= len(listed) <= len(parameters):
        return dict(zip(names, listed))  # noqa: B905
    return None


def _is_one_value(first: Parameter, values: list[Any]) -> bool:
    """Whether a list is meant for the first parameter, which takes lists, not for all of them in order."""
    def takes(value: Any) -> bool:
        with contextlib.suppress(ValueError):
            first.check(value)
            return True
        return False

    return not first.is_text and not any(map(takes, values[:1])) and (takes(values) or takes([]))


def _json(text: str) -> Any:
    """The JSON, or Python's literals, that are the whole text; None if it is anything else."""
    text = text.strip()
    value, end = decode_json(text, 0, len(text)) if text.startswith(("{", "[")) else (None, 0)
    return value if end == len(text) else None


_STRING = re.compile(r"([rR]?)([\"'])((?:\\.|(?!\2).)*)\2", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:\\(?!\\)")
_ESCAPE = re.compile(r"\\(?:[\\\"'\nabfnrtv0]|x[\da-fA-F]{2}|u[\da-fA-F]{4})")
_NO_LITERAL = re.compile(r"\d\.?(?:and|else|for|if|in|is|not|or)\b")  # `55in`: Python would print a warning


def _keywords(text: str, names: Sequence[str] = ()) -> dict[str, Any] | None:
    """`city="Oslo", days=3` as a dict, also `"Oslo", days=3` with the `names` in their order; None if it is
    anything else."""
    if "=" not in text or len(text) > 4_000 or _NO_LITERAL.search(_STRING.sub("", text)):
        return None
    try:
        call = ast.parse(f"f({_STRING.sub(_without_escapes, text)})", mode="eval").body
        if isinstance(call, ast.Call) and call.keywords and len(call.args) <= len(names):
            given = [(word.arg, word.value) for word in call.keywords]
            given += zip(names, call.args)  # noqa: B905
            found = {name: ast.literal_eval(value) for name, value in given if name}
            return found if len(found) == len(given) else None  # no `**more`, and no name twice
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    return None


def _without_escapes(string: re.Match[str]) -> str:
    r"""A string literal with its backslashes doubled if they are no escapes: `"C:\new"`, `"\d+"`."""
    raw, quote, text = string.groups()
    if not raw and (_DRIVE.match(text) or "\\" in _ESCAPE.sub("", text)):
        text = text.replace("\\", "\\\\")
    return f"{raw}{quote}{text}{quote}"
