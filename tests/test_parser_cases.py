"""Every row of cases/replies.jsonl: real failures, each with the right reading."""

import json
from pathlib import Path

import pytest

from hello_react.parser import Action, Finish, Malformed, Turn, parse

CASES = Path(__file__).parent / "cases" / "replies.jsonl"
ROWS = [json.loads(line) for line in CASES.read_text(encoding="utf-8").split("\n") if line]


def reads_as(turn: Turn, wanted: dict) -> bool:
    move = turn.move
    if wanted["type"] == "error":
        return isinstance(move, Malformed) and wanted.get("code", move.reason) == move.reason
    if "thought" in wanted and turn.thought != wanted["thought"]:
        return False
    if wanted["type"] == "finish":
        return isinstance(move, Finish) and wanted.get("answer", move.answer) == move.answer
    if wanted["type"] == "actions":
        calls = [
            {"tool": call.tool, "input": call.input}
            for call in (move, *turn.rest)
            if isinstance(call, Action)
        ]
        return len(calls) > 1 and wanted.get("actions", calls) == calls
    return (
        isinstance(move, Action)
        and wanted.get("tool", move.tool) == move.tool
        and wanted.get("input", move.input) == move.input
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_reply_reads_as_expected(row):
    turn = parse(row["text"], row["tools"])
    assert any(reads_as(turn, wanted) for wanted in [row["expect"], *row.get("also_ok", [])]), (
        row["text"],
        turn,
    )
    assert not any(reads_as(turn, wanted) for wanted in row.get("never", [])), (row["text"], turn)
