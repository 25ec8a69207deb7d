# SPDX-License-Identifier: Apache-2.0
"""Launches of the emulated kernel: writes jobs for the driver, reads results back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels.ascendc.harness.program import run_program
from tests.kernels.ascendc.harness.reference import Array, Rotation, encode

STORAGE = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32}
# A kernel that waits for something that never comes would hang; nothing here takes a minute.
TIMEOUT_S = 240


class KernelStopped(AssertionError):
    """The run ended before its output: an emulator rule, a sanitizer, or a hang."""


@dataclass
class Source:
    """A row source: element ``offset`` of tensor ``tensor``, rows ``stride`` elements apart."""

    tensor: str
    offset: int
    stride: int


@dataclass
class Launch:
    """One call of the kernel. ``tensors`` hold arrays in storage form (bf16 as uint16).

    ``channel`` is the per-channel multiplier, ``[H]`` for all slices or ``[A, H]``; it is stored
    as fp32, or in the rows' type with ``channel_is_float`` off.
    """

    rotation: Rotation
    dtype: str
    tokens: int
    sources: list[Source]
    tensors: dict[str, Array]
    slices: int = 0
    out: str = "out"
    direction: str = "unrotate"
    norm: str = "none"
    epsilon: float = 1e-6
    channel: Array | None = None
    channel_is_float: bool = True
    ids: Array | None = None
    vocab: tuple[int, int] = (0, 0)
    cores: int = 48
    seed: int = 0

    def __post_init__(self) -> None:
        self.slices = self.slices or len(self.sources)
        if self.out not in self.tensors:
            shape = (self.tokens, self.slices * self.rotation.hidden)
            # A pattern no correct run leaves behind.
            self.tensors[self.out] = (
                np.full(shape, 0xA5, dtype=np.uint8)
                .repeat(np.dtype(STORAGE[self.dtype]).itemsize, axis=-1)
                .view(STORAGE[self.dtype])
            )

    def write(self, folder: Path, name: str) -> Path:
        """Writes the job file and its tensors, returns the job file."""
        r = self.rotation
        tensors = dict(self.tensors, scale=r.scale[: r.block])
        lines = [
            f"dtype {self.dtype}",
            f"tokens {self.tokens}",
            f"slices {self.slices}",
            f"plan {r.hidden} {r.block} {r.order} {r.pow2}",
            f"direction {self.direction}",
            f"norm {self.norm}",
            f"epsilon {self.epsilon!r}",
            f"cores {self.cores}",
            f"seed {self.seed}",
            f"vocab {self.vocab[0]} {self.vocab[1]}",
            f"channel_is_float {int(self.channel_is_float)}",
            f"out {self.out}",
            "scale scale",
            f"dump {self.dump(folder, name)}",
        ]
        if r.order > 1:
            tensors["factor"] = r.factor.astype(np.int8)
            lines.append("factor factor")
        if self.channel is not None:
            tensors["channel"] = encode(
                self.channel, "f32" if self.channel_is_float else self.dtype
            )
            for a in range(self.slices):
                lines.append(f"channel channel {a * r.hidden if self.channel.ndim == 2 else 0}")
        if self.ids is not None:
            tensors["ids"] = self.ids
            lines += ["ids ids", f"id_bytes {self.ids.dtype.itemsize}"]
        for source in self.sources:
            lines.append(f"source {source.tensor} {source.offset} {source.stride}")
        for tensor, values in tensors.items():
            path = folder / f"{name}.{tensor}"
            path.write_bytes(np.ascontiguousarray(values).tobytes())
            lines.append(f"tensor {tensor} {path}")
        job = folder / f"{name}.job"
        job.write_text("\n".join(lines) + "\n")
        return job

    def dump(self, folder: Path, name: str) -> Path:
        """Where the driver leaves the output."""
        return folder / f"{name}.result"

    def read(self, folder: Path, name: str) -> Array:
        """The output of the run, in storage form and with the shape of the output tensor."""
        raw = self.dump(folder, name).read_bytes()
        result: Array = np.frombuffer(raw, dtype=STORAGE[self.dtype])
        return result.reshape(self.tensors[self.out].shape)


@dataclass
class Result:
    """Outputs of a batch of launches and the statistics the driver printed for each."""

    outputs: list[Array]
    statistics: list[dict[str, Any]]


def run(driver: Path, folder: Path, *launches: Launch) -> Result:
    """Runs the launches in one process of the driver.

    Raises:
        KernelStopped: the emulator, a sanitizer or the time limit stopped the run.
    """
    names = [f"case{i}" for i in range(len(launches))]
    jobs = [launch.write(folder, name) for launch, name in zip(launches, names, strict=True)]
    try:
        done = run_program([str(driver), *map(str, jobs)], timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise KernelStopped("HANG: no result within the time limit") from error
    if done.returncode != 0:
        raise KernelStopped(f"exit code {done.returncode}: {done.stderr[:4000]}")
    outputs = [launch.read(folder, name) for launch, name in zip(launches, names, strict=True)]
    return Result(outputs, [json.loads(line) for line in done.stdout.splitlines()])


#: Runs launches in one process of the driver: the ``run_kernel`` fixture.
RunKernel = Callable[..., Result]
