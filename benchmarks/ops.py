# SPDX-License-Identifier: Apache-2.0
"""unrotate_concat against what it replaces: ``python -m benchmarks.ops``.

bf16, A = 3 aux states ``[T, H]``, rotations as msModelSlim makes them. Ratios of one interleaved
run, median and (smallest … largest) of the rounds:

    ÷ clone      a copy of the output, allocation included: what reading and writing it once costs
    ÷ cat        ``torch.cat`` of the same states: what the host does without a correction
    ÷ dense      cat and the bf16 product with Qᵀ; left out where one call takes long
    ÷ composite  the operator in plain torch

and, without any allocation, the in-place operator against ``copy_`` of as many bytes. (Outputs up
to some 32 MB come back from the C library's heap with their pages in place and partly in the cache;
larger ones it takes from the system on every call, and the first touch of their pages then costs as
much as the work, for clone and cat as well.)

Reading the result. Per vector of 16 channels (AVX-512) the power-of-two kernel executes, in two
passes over a block in the first-level cache, for m = 4096:

    strided pass     1 permutation that widens bf16, 4 additions (distances 2048 … 256), half of
                     them as fused products with 1, 1 store
    contiguous pass  1 load, 4 additions (128 … 16), 4 shuffles and 4 fused products (8 … 1),
                     1 product with s, 2.5 to round to bf16, half a store

that is 20.5 vector instructions besides loads and stores, against 64 bytes of traffic (32 read,
32 written; 96 where a line is read before it is written). A Zen 4 core has room for two 512-bit
ones per cycle, so 10.3 cycles is a floor; but additions, products and shuffles are tied to half
of its units each, and alternating them alone, in registers, reaches 1.2 to 1.7 per cycle.
Measured, rows in the cache: 3.2 cycles for the strided pass, 10.9 for the contiguous one, 15.0
together and 14.2 for m = 2048, which is 4.1 and 3.8 ns at 3.7 GHz or 16 and 17 GB/s, on each of
two threads about what a copy of rows that are not in the cache does. Such rows cost 4.9 ns on one
thread: while a row is written, the next one is fetched into the second-level cache, in the order
in which it will be read, and outputs of 2 MB or more go past the caches in whole lines (5.2 ns if
they do not). A copy of the same rows costs 2.4 to 2.8 ns there, and a copy is all that
``torch.cat`` does. So one core is bound by instructions, and the correction cannot ride along
entirely; two cores that share a memory come closer to it.

A factor of order k adds, per vector, 3 additions and 2 stores to make the sums of four columns,
and k / 4 fused multiply-adds whose operand comes from the cache, with half a shuffle for the sign
of each (k / 8 of both and 1 addition more when F = H_2 ⊗ F', as for 160). One 512-bit load or
half a store per cycle, and one fused multiply-add, make that 4 + k / 4 cycles: 7 for k = 12, 11
for 28, 24 for 160. Measured, all together: 24, 28 and 40 to 43 per vector, of which 160 spends 7
on the runs, 4 on making the sums and 28 on adding them: 20 KB of sums beside codes, signs s and
the row leave no room in a first-level cache of 32 KB. The order-80 half of the table (79 is
prime: Paley's construction, a bordered circulant) has no further factor H_2 under any pairing of
its rows or columns, which would make it cheaper.

Cycles are of one thread that repeats one row, the smallest of many runs; the table is of all
threads, with inputs that no cache holds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.timing import Sample, interleave, machine
from tests.support.plans import real_plan
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.ops import reference
from vllm_eagle3_quarot.rotation import Plan

SIZES = (2048, 2560, 3072, 4096, 5120, 6144, 7168)
TOKENS = (1, 16, 64, 256, 1024, 4096)
AUX = 3

#: Input sets are cycled through, so that together they are several times any cache.
WORKING_SET = 256 * 2**20
LARGEST_NUMBER_OF_SETS = 4096

#: Dense products of more operations are left out; H = 4096 and T = 1024 just stays below.
LARGEST_DENSE = 1.1e11

#: A turn of one contender, in seconds.
TURN = 0.05


@dataclass(frozen=True)
class Row:
    """One size; ratios are (median, smallest, largest)."""

    hidden: int
    structure: str
    tokens: int
    microseconds: float
    gigabytes_per_second: float
    clone_gigabytes_per_second: float
    clone: tuple[float, float, float]
    cat: tuple[float, float, float]
    composite: tuple[float, float, float]
    dense: tuple[float, float, float] | None
    in_place_to_copy: tuple[float, float, float]


def measure(hidden: int, tokens: int, rounds: int) -> Row:
    """Time one size."""
    plan = real_plan(hidden)
    bytes_of_output = tokens * AUX * hidden * 2
    sets = min(LARGEST_NUMBER_OF_SETS, max(2, -(-WORKING_SET // (2 * bytes_of_output))))
    first = [torch.randn(tokens, hidden).bfloat16() for _ in range(AUX)]
    aux = [[state.clone() for state in first] for _ in range(sets)]
    joined = [torch.cat(states, dim=-1) for states in aux]
    target = torch.empty_like(joined[0])

    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda i: ops.unrotate_concat(aux[i], plan),
        "clone": lambda i: joined[i].clone(),
        "cat": lambda i: torch.cat(aux[i], dim=-1),
        "composite": lambda i: reference.unrotate_concat(aux[i], *plan),
        "in place": lambda i: ops.unrotate_(joined[i], plan),
        "copy": lambda i: target.copy_(joined[i]),
    }
    if 2 * AUX * tokens * hidden**2 <= LARGEST_DENSE:
        q_transposed = reference.unrotate(torch.eye(hidden), *plan).bfloat16()
        contenders["dense"] = lambda i: torch.cat(aux[i], dim=-1).view(-1, hidden) @ q_transposed
    sample = interleave(contenders, rounds=rounds, sets=sets, seconds=TURN)
    return _row(hidden, tokens, plan, sample, 2 * bytes_of_output)


def _row(hidden: int, tokens: int, plan: Plan, sample: Sample, traffic: int) -> Row:
    return Row(
        hidden=hidden,
        structure=f"{plan.factor.shape[0]} x {plan.power}",
        tokens=tokens,
        microseconds=sample.median("ours") * 1e6,
        gigabytes_per_second=traffic / sample.median("ours") / 1e9,
        clone_gigabytes_per_second=traffic / sample.median("clone") / 1e9,
        clone=sample.ratio("ours", "clone"),
        cat=sample.ratio("ours", "cat"),
        composite=sample.ratio("ours", "composite"),
        dense=sample.ratio("ours", "dense") if "dense" in sample.seconds else None,
        in_place_to_copy=sample.ratio("in place", "copy"),
    )


HEADER = (
    "| H | k x m | T | µs | GB/s (clone) | ÷ clone | ÷ cat | ÷ dense | ÷ composite "
    "| in place ÷ copy_ |\n"
    "|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def markdown(row: Row) -> str:
    """One line of the table under :data:`HEADER`."""
    cells = [
        str(row.hidden),
        row.structure,
        str(row.tokens),
        f"{row.microseconds:.0f}",
        f"{row.gigabytes_per_second:.1f} ({row.clone_gigabytes_per_second:.1f})",
        _ratio(row.clone),
        _ratio(row.cat),
        _ratio(row.dense),
        _ratio(row.composite),
        _ratio(row.in_place_to_copy),
    ]
    return "| " + " | ".join(cells) + " |"


def _ratio(ratio: tuple[float, float, float] | None) -> str:
    if ratio is None:
        return "-"
    median, smallest, largest = (f"{value:.3g}" for value in ratio)
    return f"{median} ({smallest} … {largest})"


def main() -> None:
    """Print the table as Markdown and, on request, write it as JSON."""
    parser = argparse.ArgumentParser(description="Benchmark of the CPU operators.")
    parser.add_argument("--hidden", type=int, nargs="+", default=SIZES, metavar="H")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, metavar="T")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved runs (default: 7)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()

    before = machine()
    backend = ops.load_native()
    print(f"{before['processor']}, {before['threads']} threads, torch {before['torch']}")
    kernel = backend.kernel if backend.kernel is not None else f"none: {backend.detail}"
    print(f"native kernels: {kernel}; load average before: {before['load_average']:.1f}\n")
    print(HEADER, flush=True)
    rows = []
    with torch.inference_mode():
        for hidden in options.hidden:
            for tokens in options.tokens:
                rows.append(measure(hidden, tokens, options.rounds))
                print(markdown(rows[-1]), flush=True)
    after = machine()
    print(f"\nload average after: {after['load_average']:.1f}")
    if options.json is not None:
        document = {
            "machine": before,
            "load_average_after": after["load_average"],
            "native_kernels": backend.kernel,
            "rounds": options.rounds,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
