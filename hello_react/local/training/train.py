"""Train the adapter: `python -m hello_react.local.training.train FOLDER` (two hours on two
cores; chapter 10).

Each worker (one a core: on a busy machine, two threads of one process wait for each other all the time)
takes one group of runs a step. All prompts and replies of a group are laid into one tree of tokens, so what
they share, tools and history, is computed once; each token sees its ancestors alone, which gives the very
numbers that single sequences would. The loss is on the replies. Killed and started again, it goes on from
its last checkpoint with the same data. Leaves out: GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed
import torch.nn.functional as functional
from tokenizers import Tokenizer

from ..fetch import fetch_weights
from .model import Llama
from .plans import Run, Turn
from .trajectories import Group, groups

BEFORE = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n"
)
BETWEEN = "<|im_end|>\n<|im_start|>assistant\n"
AFTER = "<|im_end|>"
"""The model's chat template, around the prompt and the reply; a test compares it with the server's."""

RATE, WARM_UP, CLIP = 1.5e-3, 30, 1.0
SCALE = 100.0
"""Losses are summed over tokens; for the backward pass in 16 bits they are divided by this."""
TOKENS = 1000
"""A tree with so many tokens is full: the run that fills it is its last one."""
MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""What the workers' C library is told: large pages, kept when freed. A fifth faster on Linux."""
MOST = 1400
"""Tokens of a tree at most: a run that would make it larger is left out."""


@dataclass
class Tree:
    """Tokens of many turns, each beginning shared by several of them laid down once."""

    tokens: list[int]
    parents: list[int]
    targets: list[tuple[int, int, int]]
    """(token, the one to come after it, the turn)"""
    turns: int = 0

    def seen(self) -> torch.Tensor:
        """Which tokens each token sees: its ancestors and itself."""
        matrix: Any = numpy.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                matrix[node] |= matrix[parent]
        return torch.from_numpy(matrix)

    def depths(self) -> torch.Tensor:
        depths = list[int]()
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return torch.tensor(depths)


def tree(tokenizer: Tokenizer, runs: Sequence[Run], full: int = TOKENS) -> Tree:
    """The tree of runs, until it is full."""
    grown, children = Tree([], [], []), dict[tuple[int, int], int]()

    def add(parent: int, token: int) -> int:
        if (parent, token) not in children:
            children[parent, token] = len(grown.tokens)
            grown.tokens.append(token)
            grown.parents.append(parent)
        return children[parent, token]

    def lay(turn: Turn) -> None:
        node = -1
        for token in tokenizer.encode(BEFORE + turn.prompt + BETWEEN).ids:
            node = add(node, token)
        for token in tokenizer.encode(turn.reply + AFTER).ids:
            grown.targets.append((node, token, grown.turns))
            node = add(node, token)
        grown.turns += 1

    for run in runs:
        if len(grown.tokens) >= full:
            break
        if sum(len(turn.prompt) for turn in run.turns[-1:]) < 4 * (MOST - len(grown.tokens)):
            for turn in run.turns:
                lay(turn)
    return grown


def trees(tokenizer: Tokenizer, source: Iterator[Group], full: int = TOKENS) -> Iterator[Tree]:
    """Groups of runs as trees, so that a shared prompt is read once."""
    for group in source:
        grown = tree(tokenizer, group.runs, full)
        if grown.turns:
            yield grown


def loss_and_hits(model: Llama, grown: Tree) -> tuple[torch.Tensor, int]:
    """The summed loss over all tokens of all replies, and how many replies the model would write just so."""
    places, wanted, turns = map(torch.tensor, zip(*grown.targets, strict=True))
    logits = model.logits(torch.tensor(grown.tokens), grown.depths(), grown.seen(), places)
    wrong = set(turns[logits.argmax(-1) != wanted].tolist())
    return functional.cross_entropy(logits, wanted, reduction="sum"), grown.turns - len(wrong)


def rate(step: int, steps: int, highest: float = RATE) -> float:
    """The learning rate: up in a line, down in a cosine."""
    return highest * min(1, (step + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * min(1, step / steps)))


def train(
    folder: Path,
    steps: int,
    worker: int = 0,
    workers: int = 1,
    seed: int = 1,
    every: int = 50,
    start: Path | None = None,
    highest: float = RATE,
    compiled: bool = False,
) -> None:
    """One worker's part of the training; all of them end with the same adapter, which worker 0 saves.

    Args:
        folder: for the checkpoint and the log (JSON lines).
        steps: of the whole training.
        every: steps between two checkpoints; a multiple of 5.
        start: an exported adapter to begin with; none: begin from nothing.
        highest: the highest learning rate; with `start`, half of the default forgets less.
        compiled: see `Llama`.
    """
    torch.set_num_threads(1)
    model = Llama(fetch_weights(), seed, compiled)
    if start:
        model.take_over(start)
    matrices = list(model.adapter.values())
    optimiser = torch.optim.AdamW(matrices, lr=RATE, weight_decay=0.0)
    done, spent = _load(folder, model, optimiser)
    data = itertools.islice(trees(model.tokenizer, groups(seed * 1000 + worker)), done, None)
    unseen = trees(model.tokenizer, groups(seed * 1000 + 500 + worker, held_out=True))
    held_out = list(itertools.islice(unseen, 8))
    began, parent = time.monotonic() - spent, os.getppid()
    lately = torch.zeros(5)
    for step in range(done + 1, steps + 1):
        if workers > 1 and os.getppid() != parent:
            return  # the main process was killed
        grown = next(data)
        loss, right = loss_and_hits(model, grown)
        torch.autograd.backward(loss / SCALE)
        counts = [loss.item(), len(grown.targets), right, grown.turns, len(grown.tokens)]
        totals = _averaged(matrices, torch.tensor(counts, dtype=torch.float32), workers)
        torch.nn.utils.clip_grad_norm_(matrices, CLIP)
        optimiser.param_groups[0]["lr"] = rate(step - 1, steps, highest)
        optimiser.step()
        optimiser.zero_grad()
        lately += totals
        seconds = time.monotonic() - began
        if step % 10 == 0:
            if worker == 0:
                _log(
                    folder,
                    step=step,
                    loss=round((lately[0] / lately[1]).item(), 4),
                    hits=round((lately[2] / lately[3]).item(), 3),
                    turns=int(lately[3]),
                    tokens=int(lately[4]),
                    minutes=round(seconds / 60, 1),
                )
            lately.zero_()
        if worker == 0 and (step % every == 0 or step == steps):
            _save(folder, model, optimiser, step, seconds)
        if step % (2 * every) == 0 or step == steps:
            with torch.no_grad():
                score = torch.tensor(
                    [
                        sum(loss_and_hits(model, one)[1] for one in held_out),
                        sum(one.turns for one in held_out),
                    ]
                )
            if workers > 1:
                torch.distributed.all_reduce(score)
            if worker == 0:
                _log(folder, step=step, held_out=round((score[0] / score[1]).item(), 3))


def _averaged(matrices: Sequence[torch.Tensor], counts: torch.Tensor, workers: int) -> torch.Tensor:
    """Give all workers the mean gradient over all tokens; gives the sums of their counts (loss, ...)."""
    flat = torch.cat([*(matrix.grad.flatten() for matrix in matrices if matrix.grad is not None), counts])
    if workers > 1:
        torch.distributed.all_reduce(flat)
    totals, start = flat[-len(counts) :], 0
    for matrix in matrices:
        matrix.grad = flat[start : start + matrix.numel()].view_as(matrix) * (SCALE / totals[1])
        start += matrix.numel()
    return totals


def _load(folder: Path, model: Llama, optimiser: torch.optim.Optimizer) -> tuple[int, float]:
    """Take up the last checkpoint, if there is one; the steps and seconds that were spent."""
    if not (folder / "checkpoint.pt").exists():
        return 0, 0.0
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)
    for name, matrix in saved["adapter"].items():
        model.adapter[name].data.copy_(matrix)
    optimiser.load_state_dict(saved["optimiser"])
    return int(saved["step"]), float(saved["seconds"])


def _save(folder: Path, model: Llama, optimiser: torch.optim.Optimizer, step: int, seconds: float) -> None:
    adapter = {name: matrix.detach() for name, matrix in model.adapter.items()}
    state = {"adapter": adapter, "optimiser": optimiser.state_dict(), "step": step, "seconds": seconds}
    torch.save(state, folder / "checkpoint.part")
    os.replace(folder / "checkpoint.part", folder / "checkpoint.pt")


def _log(folder: Path, **values: object) -> None:
    line = json.dumps(values)
    with open(folder / "log.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _work(
    worker: int,
    folder: str,
    steps: int,
    workers: int,
    seed: int,
    start: Path | None,
    highest: float,
    compiled: bool,
) -> None:
    if workers > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=worker, world_size=workers
        )
    train(Path(folder), steps, worker, workers, seed, start=start, highest=highest, compiled=compiled)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or go on with a training that was stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m hello_react.local.training.train", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "folder", type=Path, help="for the checkpoint and the log; an old checkpoint there is gone on with"
    )
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--workers", type=int, default=2, help="processes, one a core")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, metavar="FILE", help="an exported adapter to begin with")
    parser.add_argument("--rate", type=float, default=RATE, help="the highest learning rate")
    parser.add_argument(
        "--compiled", action="store_true", help="compile the model first: faster, needs a C++ compiler"
    )
    options = parser.parse_args(arguments)
    if options.start and not options.start.is_file():
        parser.error(f"there is no file {options.start}")
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meet").unlink(missing_ok=True)
    fetch_weights()
    for name, value in MEMORY.items():
        os.environ.setdefault(name, value)
    torch.multiprocessing.start_processes(
        _work,
        (
            str(folder),
            options.steps,
            options.workers,
            options.seed,
            options.start,
            options.rate,
            options.compiled,
        ),
        options.workers,
    )


if __name__ == "__main__":
    main()
