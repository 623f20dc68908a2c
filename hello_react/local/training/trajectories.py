"""Synthetic ReAct runs to learn from: questions, and the right steps to their answers (chapter 10).

Every run is played with the package's own parts: a `ToolExecutor` describes and runs the tools (the shipped
encyclopedia and calculator among them), the parser words its notes, `render_step` writes the history. What
`held_out` gives has other phrasings, passages and names than what training sees.

    >>> group = next(groups(seed=1))
    >>> run = group.runs[0]
    >>> len(run.turns) >= 1, run.turns[-1].reply.endswith(f"Finish[{run.answer}]")
    (True, True)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ...tools import ToolExecutor
from .kits import random_kit
from .plans import PLANS, Run, Script, Unsuited
from .world import World


@dataclass(frozen=True)
class Group:
    """Runs that share one set of tools."""

    tools: ToolExecutor
    runs: tuple[Run, ...]


def groups(seed: int, *, held_out: bool = False, size: int = 6) -> Iterator[Group]:
    """Groups of runs without end, the same for the same seed.

    Args:
        held_out: with the phrasings and passages that training never sees.
        size: runs in a group.
    """
    rng = random.Random(f"{'held out' if held_out else 'training'} {seed}")
    kinds, weights = list(PLANS), [weight for _, weight in PLANS.values()]
    while True:
        world = World(rng, held_out)
        for _ in range(60):
            kit = random_kit(world)
            runs = list[Run]()
            for _ in range(20 * size):
                if len(runs) == size:
                    break
                kind = rng.choices(kinds, weights)[0]
                script = Script(world, kit)
                script.kind = kind
                try:
                    PLANS[kind][0](script)
                except Unsuited:
                    continue
                runs.append(script.run())
            if runs:
                yield Group(kit.executor, tuple(runs))
