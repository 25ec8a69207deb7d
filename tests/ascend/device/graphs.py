# SPDX-License-Identifier: Apache-2.0
"""ACL graphs on the fake device: what is launched during a capture is launched again by a replay.

A replay runs no Python of model, draft or plugin: it makes the recorded operator calls over the
memory that they had, as a device does. What vllm-ascend changes in a captured graph before each
replay (lengths of the attention) takes its own way: a task group is recorded apart and replaced,
and the replay stops in front of it until the event is recorded that says so.

Operators are computed during the capture, too, which a device does not do. A host that reads a
value during a capture is an error, as it is there. vllm-ascend captures what ``torch.compile`` has
compiled; here the modules are captured as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.kernels.npu_runtime import host_memory
from tests.kernels.npu_runtime.host_memory import Launch


@dataclass
class TaskGroup:
    """Calls that are replaced before a replay.

    Attributes:
        captured: the first ones; they keep memory that the later ones only point to.
    """

    launches: list[Launch] = field(default_factory=list)
    captured: list[Launch] = field(default_factory=list)


class ExternalEvent:
    """A graph waits for it; another stream records it."""

    def __init__(self) -> None:
        self.recorded = False

    def wait(self, stream: object = None) -> None:
        _device.capturing().append(self._waited)

    def reset(self, stream: object = None) -> None:
        _device.capturing().append(self._cleared)

    def record(self, stream: object = None) -> None:
        self.recorded = True
        _device.resume()

    def _waited(self) -> bool:
        return self.recorded

    def _cleared(self) -> bool:
        self.recorded = False
        return True


#: A call, calls that change, or something of an event, which says whether the graph can go on.
Step = Launch | TaskGroup | Callable[[], bool]


class NPUGraph:
    """In the place of ``torch.npu.NPUGraph``."""

    def __init__(self, *_: object, **__: object) -> None:
        self.steps: list[Step] = []
        self.replays = 0

    def replay(self) -> None:
        if _device.running is not None:
            raise RuntimeError("a graph is replayed while another one waits for an event")
        self.replays += 1
        _device.running = self._run()
        _device.resume()

    def reset(self) -> None:
        self.steps.clear()

    def _run(self) -> Iterator[None]:
        for step in self.steps:
            if isinstance(step, TaskGroup):
                for launch in step.launches:
                    launch.again()
            elif isinstance(step, Launch):
                step.again()
            else:
                while not step():
                    yield


class _Device:
    def __init__(self) -> None:
        self.graph: NPUGraph | None = None
        self.group: TaskGroup | None = None
        self.running: Iterator[None] | None = None

    def capturing(self) -> list[Step]:
        if self.graph is None:
            raise RuntimeError("events of graphs belong into a capture")
        return self.graph.steps

    def resume(self) -> None:
        """Go on with the graph that runs, to its end or to the next event that is missing."""
        if self.running is not None and next(self.running, self) is self:
            self.running = None

    def launched(self, launch: Launch) -> None:
        if self.group is not None:
            self.group.launches.append(launch)
        elif self.graph is not None:
            if launch.reaches_the_host:
                raise RuntimeError(f"the host reads what {launch.function} returns, in a capture")
            self.graph.steps.append(launch)
        elif self.running is not None:
            raise RuntimeError(f"{launch.function} is launched behind a graph that still waits")


_device = _Device()


@contextmanager
def _capture(graph: NPUGraph, *_: object, **__: object) -> Iterator[None]:
    _device.graph = graph
    try:
        yield
    finally:
        _device.graph = None


def _group_begin(stream: object) -> None:
    _device.group = TaskGroup()


def _group_end(stream: object) -> TaskGroup:
    group, _device.group = _device.group, None
    assert group is not None
    group.captured = list(group.launches)
    _device.capturing().append(group)
    return group


def _update_begin(stream: object, group: TaskGroup) -> None:
    group.launches.clear()
    _device.group = group


def _update_end(stream: object) -> None:
    _device.group = None


def emulate_graphs() -> None:
    """Put all this where vllm-ascend looks for it; its worker's module is imported."""
    import torch_npu
    from vllm.config import CUDAGraphMode
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    def uses_graphs(runner: Any) -> bool:
        return bool(runner.compilation_config.cudagraph_mode != CUDAGraphMode.NONE)

    NPUModelRunner._use_aclgraph = uses_graphs

    npu: Any = torch_npu.npu
    npu.NPUGraph = NPUGraph
    npu.graph = _capture
    npu.ExternalEvent = ExternalEvent
    npu.graph_task_group_begin = _group_begin
    npu.graph_task_group_end = _group_end
    npu.graph_task_update_begin = _update_begin
    npu.graph_task_update_end = _update_end
    host_memory.observer = _device.launched
