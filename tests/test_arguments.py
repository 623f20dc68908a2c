"""Arguments by signature: any number of texts. The other forms are tested with the tools, in `test_tools.py`."""

import pytest

from hello_react import ToolExecutor
from hello_react.arguments import bind, json_schema, parameters


def join(separator: str, *names: str) -> str:
    """Joins names."""
    return separator.join(names)


def invite(*names: str) -> str:
    """Invites people."""
    return f"{len(names)}: {', '.join(names)}"


@pytest.mark.parametrize(("function", "required"), [(join, ["separator"]), (invite, ["names"])])
def test_any_number_of_texts_is_a_list(function, required):
    schema = json_schema(parameters(function))
    assert schema["properties"]["names"]["type"] == "array"
    assert schema["properties"]["names"]["items"] == {"type": "string"}
    assert schema["required"] == required


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (join, {"separator": "-", "names": ["a", "b"]}, "a-b"),
        (join, {"separator": "-"}, ""),
        (join, '{"separator": "-", "names": ["a", "b"]}', "a-b"),
        (invite, {"names": ["Ada", "Bo"]}, "2: Ada, Bo"),
        (invite, {"names": "Ada"}, "1: Ada"),
        (invite, '["Ada", "Bo"]', "2: Ada, Bo"),
        (invite, "Ada", "1: Ada"),
    ],
)
def test_any_number_of_texts_as_a_model_gives_them(function, given, told):
    args, kwargs = bind("tool", parameters(function), given)
    assert function(*args, **kwargs) == told


def test_one_value_of_any_number_is_checked_too():
    tools = ToolExecutor()

    @tools.tool
    def total(*numbers: int) -> int:
        """Adds."""
        return sum(numbers)

    assert tools.execute("total", "7").text == "7"
    assert tools.execute("total", {"numbers": 7}).text == "7"
    assert tools.execute("total", "seven").error == "bad_input"
