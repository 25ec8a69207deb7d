# SPDX-License-Identifier: Apache-2.0
"""What ``eagle3-quarot recover`` takes for a real model's size: ``python -m benchmarks.recover``.

Writes tables of an original model and of a target that was made from it, bf16 ``[V, H]``, into
``--work`` (12 GB for the defaults, removed afterwards), runs the command in a process of its own
and prints seconds, peak memory and the distance to the truth. Cases:

    seed    msModelSlim's rotation, found by its seed
    vote    the same form with signs and order that no table has, found by the sign vote
    dense   no structure at all, as learned rotations have none: Procrustes on embedding and head

The embedding has channels of very different size, and some thirty times larger than the others, as
trained tables do; the head has not. Peak memory is the largest resident set: pages of the mapped
files count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.timing import machine
from vllm_eagle3_quarot.checkpoint.safetensors_file import NewTensor, tensor_bytes, write_file
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.factorisation import Structure
from vllm_eagle3_quarot.rotation.msmodelslim import msmodelslim_rotation

CASES = ("seed", "vote", "dense")
ROWS_AT_ONCE = 4096
SMALLEST_CHANNEL = 10**-2.5
OUTLIERS = 8
SEED = 9


@dataclass(frozen=True)
class Result:
    """One run of the command; ``error`` is ``|Q - truth| / |truth|``."""

    case: str
    how: str
    seconds: float
    peak_gib: float
    error: float
    residual: float
    orthogonality: float


def truth(case: str, size: int) -> Rotation:
    """The rotation that is to be found."""
    if case == "seed":
        return msmodelslim_rotation(size)
    generator = torch.Generator().manual_seed(SEED)
    if case == "vote":
        known = msmodelslim_rotation(size).structure
        assert known is not None
        signs = torch.randint(0, 2, (known.block,), generator=generator).float() * 2 - 1
        order = torch.randperm(len(known.factor), generator=generator)
        structure = Structure(signs, known.factor[:, order], known.power, known.scale)
        return Rotation.from_structure(structure, size, source="a Hadamard form of no tool")
    q, _ = torch.linalg.qr(torch.randn(size, size, generator=generator))
    return Rotation.from_dense(q, source="a dense rotation")


def write_models(folder: Path, rotation: Rotation, vocabulary: int) -> tuple[Path, Path]:
    """Write what ``recover`` reads of a target and of its original."""
    size = rotation.size
    generator = torch.Generator().manual_seed(SEED)
    sizes = SMALLEST_CHANNEL ** torch.rand(size, generator=generator)
    sizes[torch.randperm(size, generator=generator)[:OUTLIERS]] = 30.0
    norm = (torch.rand(size, generator=generator) + 0.5).to(torch.bfloat16)
    folders = folder / "target", folder / "original"
    for path, rotated in zip(folders, (True, False), strict=True):
        path.mkdir(parents=True)
        config = {"hidden_size": size, "vocab_size": vocabulary, "tie_word_embeddings": False}
        (path / "config.json").write_text(json.dumps(config))

        def rows(
            seed: int, scale: torch.Tensor, fold: torch.Tensor | None, rotated: bool = rotated
        ) -> Iterator[memoryview]:
            stream = torch.Generator().manual_seed(seed)
            for start in range(0, vocabulary, ROWS_AT_ONCE):
                count = min(ROWS_AT_ONCE, vocabulary - start)
                some = (torch.randn(count, size, generator=stream) * scale).to(torch.bfloat16)
                if rotated:
                    some = some if fold is None else some * fold
                    some = rotation.rotate(some.float()).to(torch.bfloat16)
                yield tensor_bytes(some)

        shape = (vocabulary, size)
        final = torch.ones_like(norm) if rotated else norm
        tables = [
            NewTensor("model.embed_tokens.weight", "BF16", shape, rows(1, sizes, None)),
            NewTensor("lm_head.weight", "BF16", shape, rows(2, torch.ones(size), norm)),
            NewTensor("model.norm.weight", "BF16", (size,), iter([tensor_bytes(final)])),
        ]
        write_file(path / "model.safetensors", tables, {})
    return folders


def measure(case: str, size: int, vocabulary: int, work: Path) -> Result:
    """Write the models, run the command, compare."""
    rotation = truth(case, size)
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        target, original = write_models(folder, rotation, vocabulary)
        output = folder / "rotation.safetensors"
        command = [sys.executable, "-m", "vllm_eagle3_quarot", "recover", "--json"]
        command += ["--target-model-path", str(target), "--original-model-path", str(original)]
        start = time.monotonic()
        process = subprocess.Popen(
            [*command, "--output", str(output)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        if status:
            raise SystemExit(f"recover failed: {text}")
        document = json.loads(text)
        found = Rotation.from_file(output, hidden_size=size)
        expected = rotation.dense()
        return Result(
            case=case,
            how=document["how"],
            seconds=seconds,
            peak_gib=usage.ru_maxrss / 2**20,
            error=float((found.dense() - expected).norm() / expected.norm()),
            residual=document["fit"]["residual"],
            orthogonality=document["fit"]["orthogonality"],
        )


def main() -> None:
    """Measure the cases that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--hidden", type=int, default=5120)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    print(json.dumps(machine()))
    print(f"V={arguments.vocabulary}, H={arguments.hidden}")
    for case in arguments.cases:
        result = measure(case, arguments.hidden, arguments.vocabulary, arguments.work)
        print(
            f"{result.case:6} {result.how:40} {result.seconds:6.1f} s  {result.peak_gib:5.2f} GiB  "
            f"error {result.error:.1e}  residual {result.residual:.1e}  "
            f"orthogonality {result.orthogonality:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
