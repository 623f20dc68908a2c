"""The embedded model in PyTorch, just enough to train a LoRA adapter on it (chapter 10).

Everything is read from the GGUF file that the server runs, so the adapter is trained on the very
(quantised) weights that it will be used with, and in their own layout: llama.cpp turns pairs of neighbours
in its rotary embedding, so do we, and no row of the query and key matrices is ever permuted. Leaves out
generation: the server does that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import torch
import torch.nn.functional as functional
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

RANK, ALPHA = 8, 16.0
"""Of the adapter: rows of its matrices; its additions are scaled by alpha / rank."""
HEADS, KV_HEADS, HEAD = 9, 3, 64
SHARED = HEADS // KV_HEADS
"""Heads of queries that share one head of keys and values."""
ROWS = 128
"""Tokens whose attention is computed at once."""
GROUPS = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "out": ("attn_output",),
    "up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}
"""The linear layers of a block by the input that they share: each group is one matrix multiplication."""
Linear = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The weights of a group, and the two matrices of its adapter."""


def tokenizer(reader: gguf.GGUFReader) -> Tokenizer:
    """The model's own byte-level BPE, from its file."""
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(pair.split(" ")) for pair in reader.fields["tokenizer.ggml.merges"].contents()]
    found = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens(
        [
            AddedToken(word, normalized=False)
            for word, kind in zip(words, kinds, strict=True)
            if kind == gguf.TokenType.CONTROL
        ]
    )
    return found


def matrices(reader: gguf.GGUFReader) -> dict[str, torch.Tensor]:
    """The matrices of a file by name, in 32 bits: of the model, or of an exported adapter."""
    return {
        tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        for tensor in reader.tensors
    }


class Llama:
    """The frozen model with a trainable adapter.

    Args:
        path: the GGUF file.
        seed: of the adapter's first values.
        compiled: a third faster after a minute's start; PyTorch needs a C++ compiler for it.

    Attributes:
        adapter: the trainable matrices, named as in the file: "blk.0.attn_q.weight.lora_a" and so on.
        tokenizer: the model's tokenizer.
    """

    def __init__(self, path: Path, seed: int = 0, compiled: bool = False) -> None:
        self._before: Callable[..., Any] = _before
        self._after: Callable[..., Any] = _after
        if compiled:
            self._before, self._after = (
                torch.compile(_before, dynamic=True),
                torch.compile(_after, dynamic=True),
            )
        reader = gguf.GGUFReader(path)
        self.tokenizer = tokenizer(reader)
        weights = matrices(reader)
        self.embedding = weights["token_embd.weight"].bfloat16()
        self.last_norm = weights["output_norm.weight"]
        self.blocks: list[dict[str, torch.Tensor]] = []
        self.adapter: dict[str, torch.Tensor] = {}
        random = torch.Generator().manual_seed(seed)
        for number in range(sum(name.endswith("attn_q.weight") for name in weights)):
            prefix = f"blk.{number}."
            block = {name: weights[f"{prefix}{name}.weight"] for name in ("attn_norm", "ffn_norm")}
            for group, names in GROUPS.items():
                parts = [weights[f"{prefix}{name}.weight"] for name in names]
                block[group] = torch.cat(parts).bfloat16()
                for name, part in zip(names, parts, strict=True):
                    rows, columns = part.shape
                    first = (torch.rand(RANK, columns, generator=random) * 2 - 1) / math.sqrt(columns)
                    self.adapter[f"{prefix}{name}.weight.lora_a"] = first.requires_grad_()
                    self.adapter[f"{prefix}{name}.weight.lora_b"] = torch.zeros(
                        rows, RANK, requires_grad=True
                    )
            self.blocks.append(block)

    def take_over(self, path: Path) -> None:
        """Set the adapter to that of an exported file."""
        for name, matrix in matrices(gguf.GGUFReader(path)).items():
            self.adapter[name].data.copy_(matrix)

    def logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, seen: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """The scores of the next token at some places.

        Args:
            tokens: token numbers, one dimension.
            positions: the position of each, from 0.
            seen: a square matrix of bools: whether the token of the row sees the token of the column.
            wanted: the places whose scores to give.

        Returns:
            One row of scores (32 bits) for each place wanted.
        """
        hidden = functional.embedding(tokens, self.embedding).float()
        angles = positions[:, None] * 100_000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        turn = angles.cos()[:, None], angles.sin()[:, None]
        parts = _parts(seen)
        for number, block in enumerate(self.blocks):
            linear = {group: self._linear(number, group) for group in GROUPS}
            queries, keys, values = self._before(hidden, block["attn_norm"], linear["qkv"], turn)
            mixed = torch.cat([_attend(queries, keys, values, *part) for part in parts])
            rest = linear["out"], linear["up"], linear["down"]
            hidden = self._after(hidden, mixed, block["ffn_norm"], *rest)
        return functional.linear(_norm(hidden[wanted], self.last_norm), self.embedding).float()

    def _linear(self, number: int, group: str) -> Linear:
        """A group of linear layers with their additions, side by side."""
        names = [f"blk.{number}.{name}.weight.lora_" for name in GROUPS[group]]
        down = torch.cat([self.adapter[f"{name}a"] for name in names]).bfloat16()
        up = torch.block_diag(*(self.adapter[f"{name}b"] for name in names)) * (ALPHA / RANK)
        return self.blocks[number][group], down, up.bfloat16()


def _before(
    hidden: torch.Tensor, norm: torch.Tensor, qkv: Linear, turn: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values: a block up to its attention."""
    read = _apply(_norm(hidden, norm), qkv)
    queries, keys, values = read.split([HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=-1)
    return _rotate(queries, HEADS, *turn), _rotate(keys, KV_HEADS, *turn), values


def _after(
    hidden: torch.Tensor, mixed: torch.Tensor, norm: torch.Tensor, out: Linear, up: Linear, down: Linear
) -> torch.Tensor:
    """A block from its attention on."""
    hidden = hidden + _apply(mixed, out)
    gate, value = _apply(_norm(hidden, norm), up).chunk(2, dim=-1)
    return hidden + _apply(functional.silu(gate) * value, down)


def _apply(read: torch.Tensor, linear: Linear) -> torch.Tensor:
    weights, down, up = linear
    return functional.linear(read, weights) + functional.linear(functional.linear(read, down), up)


def _parts(seen: torch.Tensor) -> list[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Rows of `seen` that are computed together, the columns that any of them sees, what hides the others.

    In a tree a run does not see the runs beside it: most columns of a part are left out.
    """
    found = []
    for start in range(0, len(seen), ROWS):
        rows = slice(start, start + ROWS)
        columns = seen[rows].any(0).nonzero()[:, 0]
        hidden = ~seen[rows, columns]
        hide = torch.zeros(hidden.shape).masked_fill(hidden, -1e9).bfloat16()
        found.append((rows, columns, hide.repeat(SHARED, 1).expand(KV_HEADS, -1, -1)))
    return found


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: slice,
    columns: torch.Tensor,
    hide: torch.Tensor,
) -> torch.Tensor:
    """What the tokens of one part read. On a CPU this is faster than a fused attention with a mask."""
    asked = queries[rows].unflatten(1, (KV_HEADS, SHARED, HEAD)).permute(1, 2, 0, 3).flatten(1, 2)
    read, told = (
        one.index_select(0, columns).unflatten(1, (KV_HEADS, HEAD)).transpose(0, 1) for one in (keys, values)
    )
    scores = torch.baddbmm(hide, asked, read.transpose(1, 2), alpha=HEAD**-0.5)
    mixed = torch.bmm(scores.softmax(-1), told)
    return mixed.unflatten(1, (SHARED, -1)).permute(2, 0, 1, 3).flatten(1)


def _norm(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(hidden, weight.shape, weight, 1e-5).bfloat16()


def _rotate(read: torch.Tensor, heads: int, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The rotary embedding of queries or keys."""
    first, second = read.float().reshape(-1, heads, HEAD // 2, 2).unbind(-1)
    turned = first * cosine - second * sine, first * sine + second * cosine
    return torch.stack(turned, -1).reshape(read.shape).bfloat16()
