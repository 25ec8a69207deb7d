# SPDX-License-Identifier: Apache-2.0
"""NPU tensors as the CPU sees them: the fake runtime's device memory is host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of ``tensor``; a CPU tensor is returned as it is."""
    if tensor.device.type == "cpu":
        return tensor
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    if count == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    size = count * tensor.element_size()
    memory = (ctypes.c_uint8 * size).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def to_device(result: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor in device memory, made without an operator of the device."""
    output = torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device="npu")
    memory_of(output).copy_(result)
    return output


class Loan:
    """The device tensors of one operator call, lent to the CPU and given back afterwards."""

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._by_memory: dict[int, torch.Tensor] = {}

    def take(self, value: Any) -> Any:
        """The CPU's view of ``value`` when it is a device tensor, else ``value``."""
        if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
            return value
        view = memory_of(value)
        self._by_identity[id(view)] = (view, value)
        self._by_memory[value.untyped_storage().data_ptr()] = value
        return view

    def give_back(self, value: Any) -> Any:
        """The device tensor that ``value`` stands for; a new tensor is copied to the device."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self._by_identity:
            return self._by_identity[id(value)][1]
        lent = self._by_memory.get(value.untyped_storage().data_ptr())
        if lent is not None and value.numel() and lent.dtype == value.dtype:
            return lent.as_strided(value.size(), value.stride(), value.storage_offset())
        return to_device(value)

    def settle(self) -> None:
        """Bring an output that the CPU had to enlarge (``out=`` of another size) to the device."""
        for view, tensor in self._by_identity.values():
            if view.size() != tensor.size():
                tensor.resize_(view.size())
                memory_of(tensor).copy_(view)


@dataclass(frozen=True)
class Launch:
    """One operator call on the device, and what it takes to make it again.

    Attributes:
        leaves: the arguments, flat; they keep the memory that the call works on.
        returned: what the caller got, on the device unless the operator brings it to the host.
    """

    function: Callable[..., Any]
    leaves: list[Any]
    structure: pytree.TreeSpec
    returned: Any

    @property
    def reaches_the_host(self) -> bool:
        """True when the caller got a value instead of device memory."""
        values = [v for v in pytree.tree_leaves(self.returned) if v is not None]
        return any(not isinstance(v, torch.Tensor) or v.device.type == "cpu" for v in values)

    def again(self) -> None:
        """Compute once more, over the same memory."""
        lent = [memory_of(v) if isinstance(v, torch.Tensor) else v for v in self.leaves]
        arguments, options = pytree.tree_unflatten(lent, self.structure)
        result = self.function(*arguments, **options)
        for new, old in zip(
            pytree.tree_leaves(result), pytree.tree_leaves(self.returned), strict=True
        ):
            if isinstance(old, torch.Tensor):
                memory = memory_of(old)
                if memory.data_ptr() != new.data_ptr():
                    memory.copy_(new)


#: Told of every call once it is made; None: nobody asks.
observer: Callable[[Launch], None] | None = None


def computed_on_host(
    function: Callable[..., Any], *, host_operands_allowed: bool = False
) -> Callable[..., Any]:
    """A kernel for the NPU whose values ``function`` computes on the CPU, over the same memory.

    An operand on the host is an error here as it is on a device, unless it is a scalar or
    ``host_operands_allowed``. A result belongs on the device unless ``device=`` says otherwise.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        loan = Loan()
        stays_on_host = False
        if kwargs.get("device") is not None:
            stays_on_host = torch.device(kwargs["device"]).type == "cpu"
            kwargs["device"] = torch.device("cpu")
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = None
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if not host_operands_allowed:
            for leaf in leaves:
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.dim():
                    raise RuntimeError(
                        f"{function}: an operand of shape {tuple(leaf.shape)} is on the host"
                    )
        # A generator of the device has no counterpart; the CPU's default one draws instead.
        lent = [None if isinstance(leaf, torch.Generator) else loan.take(leaf) for leaf in leaves]
        on_host_args, on_host_kwargs = pytree.tree_unflatten(lent, spec)
        result = function(*on_host_args, **on_host_kwargs)
        loan.settle()
        if not stays_on_host:
            # An in-place operator on a host tensor (a copy from the device) returns that tensor.
            unchanged = {id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
            result = pytree.tree_map(
                lambda leaf: leaf if id(leaf) in unchanged else loan.give_back(leaf), result
            )
        if observer is not None:
            observer(Launch(function, leaves, spec, result))
        return result

    return kernel
