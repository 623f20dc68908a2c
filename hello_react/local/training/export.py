"""From a checkpoint to the shipped file: `python -m hello_react.local.training.export CHECKPOINT FILE`.

Writes the adapter as GGUF in 16 bits, as llama.cpp loads it, with the fingerprint of the prompt that it was
trained on. The matrices are in the layout of the GGUF weights already (see `model.py`), so no row is moved.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy
import torch

from ..prompt import FINGERPRINT_KEY, fingerprint
from .model import ALPHA, matrices


def export(adapter: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the adapter; the file is there whole or not at all."""
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_name("hello_react ReAct adapter for SmolLM2-135M-Instruct")
    writer.add_license("Apache-2.0")
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    writer.add_string(FINGERPRINT_KEY, fingerprint())
    for name, matrix in adapter.items():
        writer.add_tensor(name, matrix.detach().numpy().astype(numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, path)


def mixed(adapter: Mapping[str, torch.Tensor], start: Path, share: float) -> dict[str, torch.Tensor]:
    """The mean of an adapter and of the one that its training began with, number by number.

    Of what the further training moved, `share` is kept: some of what the first one did better comes back.
    (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models", arXiv 2109.01903.)
    """
    first = matrices(gguf.GGUFReader(start))
    return {name: (1 - share) * first[name] + share * matrix.detach() for name, matrix in adapter.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the adapter of a checkpoint as a GGUF file."""
    parser = argparse.ArgumentParser(
        prog="python -m hello_react.local.training.export", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("checkpoint", type=Path, help="the file that training left")
    parser.add_argument("adapter", type=Path, help="the file to write")
    parser.add_argument(
        "--mix",
        type=Path,
        metavar="FILE",
        help="the exported adapter that training began with: write a mean of both, which forgets less",
    )
    parser.add_argument("--share", type=float, default=0.6, help="of the checkpoint in it (default: 0.6)")
    options = parser.parse_args(arguments)
    for path in filter(None, (options.checkpoint, options.mix)):
        if not path.is_file():
            parser.error(f"there is no file {path}")
    adapter = torch.load(options.checkpoint, weights_only=True)["adapter"]
    if options.mix:
        adapter = mixed(adapter, options.mix, options.share)
    export(adapter, options.adapter)


if __name__ == "__main__":
    main()
