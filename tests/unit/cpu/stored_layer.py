# SPDX-License-Identifier: Apache-2.0
"""Linear layers as msModelSlim 26.1.0 stores them, and its arithmetic in numpy.

The arithmetic is independent of the code under test: numpy instead of torch, int64 sums, the order
of operations of the format's definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

Array = np.ndarray


@dataclass
class StoredLayer:
    """One layer of the checkpoint, before the engine fuses it.

    Attributes:
        tensors: by the last part of their names, without the bias.
        bias: the float layer's ``[N]``, None when it has none.
        scheme: type in the description.
    """

    tensors: dict[str, torch.Tensor]
    bias: torch.Tensor | None = None
    scheme: str = field(default="W8A8")

    def expected(self, x: torch.Tensor) -> Array:
        """float64 ``[T, N]`` for ``x`` ``[T, K]``."""
        weight = self.tensors["weight"].numpy().astype(np.int64)
        steps = x.to(torch.float32).numpy()
        if self.scheme == "W8A8":
            quantised = np.rint(
                steps / self.tensors["input_scale"].numpy() + self.tensors["input_offset"].numpy()
            )
            x_q = np.clip(quantised, -128, 127).astype(np.int64)
            integers = x_q @ weight.T + self.tensors["quant_bias"].numpy().astype(np.int64)
            return integers * self.scales()
        x_scale = np.abs(steps).max(axis=1, keepdims=True) / np.float32(127)
        x_q = np.rint(steps / x_scale).astype(np.int64)
        product = (x_q @ weight.T) * x_scale.astype(np.float64) * self.scales()
        return product + (0.0 if self.bias is None else self.bias.numpy().astype(np.float64))

    def scales(self) -> Array:
        """float64 ``[N]``: the scale of each output channel, whichever way it is stored."""
        stored = self.tensors["deq_scale" if self.scheme == "W8A8" else "weight_scale"].numpy()
        if stored.dtype == np.int64:
            stored = stored.astype(np.int32).view(np.float32)
        return stored.reshape(-1).astype(np.float64)

    def sums(self, x: torch.Tensor) -> Array:
        """float64 ``[T, N]``: magnitude of the terms of :meth:`expected`, for error bounds."""
        base = np.abs(self.expected(x))
        return base + (0.0 if self.bias is None else np.abs(self.bias.numpy()))


def static_layer(
    n: int,
    k: int,
    *,
    seed: int = 0,
    input_range: tuple[float, float] = (-2.0, 3.0),
    bias: bool = False,
    int64_scale: bool = False,
) -> StoredLayer:
    """Quantise a random layer the way the tool does (minmax, asymmetric input, per channel)."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n, k, generator=generator)
    float_bias = torch.randn(n, generator=generator) * 3 if bias else None
    low, high = input_range
    input_scale = torch.tensor([(high - low) / 255])
    input_offset = torch.round(-low / input_scale) - 128
    weight_scale = weight.abs().amax(dim=1) / 127
    w8 = (weight / weight_scale[:, None]).round().clamp(-128, 127)
    deq_scale = input_scale * weight_scale
    correction = w8.sum(dim=1) * input_offset
    quant_bias = torch.round((0 if float_bias is None else float_bias) / deq_scale - correction)
    if int64_scale:
        bits = np.frombuffer(deq_scale.numpy().tobytes(), dtype=np.int32).astype(np.int64)
        deq_scale = torch.from_numpy(bits)
    tensors = {
        "weight": w8.to(torch.int8),
        "quant_bias": quant_bias.to(torch.int32),
        "deq_scale": deq_scale,
        "input_scale": input_scale,
        "input_offset": input_offset,
    }
    return StoredLayer(tensors, float_bias)


def dynamic_layer(n: int, k: int, *, seed: int = 0, bias: bool = False) -> StoredLayer:
    """Quantise a random layer the way the tool does (per-token input, per channel)."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n, k, generator=generator)
    weight_scale = weight.abs().amax(dim=1, keepdim=True) / 127
    tensors = {
        "weight": (weight / weight_scale).round().to(torch.int8),
        "weight_scale": weight_scale,
        "weight_offset": torch.zeros_like(weight_scale),
    }
    float_bias = torch.randn(n, generator=generator) if bias else None
    return StoredLayer(tensors, float_bias, "W8A8_DYNAMIC")
