# SPDX-License-Identifier: Apache-2.0
"""Every seeded defect of the kernels is caught, and by the check that is meant to catch it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import build
from tests.kernels.ascendc.harness.battery import battery, check_all
from tests.kernels.ascendc.harness.compilation import CompileError
from tests.kernels.ascendc.harness.launch import KernelStopped, run
from tests.kernels.ascendc.harness.mutations import EQUIVALENT, MUTATIONS, Mutation

# The emulator's own checks are what is tested, so mutants skip the sanitizers and most of the
# optimiser: they compile in a third of the time.
FLAGS = ("-O0", "-w")


def outcome(mutation: Mutation | None, folder: Path) -> tuple[str, list[object]]:
    """How a run of the battery ends ('' is success) and the counts of its launches."""
    kernels = build.KERNELS
    if mutation is not None:
        kernels = folder / "op_kernel"
        mutation.apply(build.KERNELS, kernels)
    try:
        driver = build.executable(kernels=kernels, flags=FLAGS)
    except CompileError as error:
        return f"compile: {error}", []
    try:
        result = run(driver, folder, *(launch for launch, _ in battery()))
    except KernelStopped as stopped:
        return str(stopped), []
    try:
        check_all(result.outputs)
    except AssertionError as wrong:
        return f"numerics: {wrong}", []
    return "", [entry["counts"] for entry in result.statistics]


Outcomes = Callable[[str], tuple[str, list[object]]]


@pytest.fixture(scope="module")
def outcomes(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Mutants are built and run two at a time in the background; a test waits for its own."""
    battery()
    mutations: list[Mutation | None] = [None, *MUTATIONS, *(m for m, _ in EQUIVALENT)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = {
            "" if m is None else m.name: pool.submit(outcome, m, tmp_path_factory.mktemp("mutant"))
            for m in mutations
        }
        yield lambda name: futures[name].result()
        pool.shutdown(cancel_futures=True)


def test_the_unchanged_kernel_passes(outcomes: Outcomes) -> None:
    assert outcomes("")[0] == ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_is_caught(outcomes: Outcomes, mutation: Mutation) -> None:
    message, counts = outcomes(mutation.name)
    if mutation.caught_by == "snapshot":
        assert message == ""
        assert counts != outcomes("")[1], "the mutant has the counts of the original"
        return
    assert message, "the mutant survived"
    if mutation.caught_by in {"numerics", "compile"}:
        assert message.startswith(mutation.caught_by), message
    else:
        assert f"EMULATOR {mutation.caught_by}" in message, message


@pytest.mark.parametrize(
    "mutation", [m for m, _ in EQUIVALENT], ids=lambda m: m.name.replace(" ", "-")
)
def test_equivalent_rewrite_survives(outcomes: Outcomes, mutation: Mutation) -> None:
    """A device could not show these either; `EQUIVALENT` gives the reason for each."""
    assert outcomes(mutation.name)[0] == ""
