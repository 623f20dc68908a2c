"""Placeholder, being written: the dataclasses are final."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """A complete tool call: run `tool` with `input` (text, as the model wrote it). `id` only with native tool calls."""

    tool: str
    input: str
    id: str = ""


@dataclass(frozen=True)
class Finish:
    """The final answer."""

    answer: str


@dataclass(frozen=True)
class Malformed:
    """A reply that can't be read: `reason` is one of REASONS, `note` tells the model what to write instead."""

    reason: str
    note: str
