# SPDX-License-Identifier: Apache-2.0
"""The reference pair served in every way: ``python -m benchmarks.serving --output-dir FOLDER``.

Real servers, driven by ``vllm bench serve``. Without options a small part of the matrix that takes
some ten minutes on two cores; the whole of it:

    python -m benchmarks.serving --targets float w8a8 quarot \\
        --drafts none plain uncorrected runtime folded aligned --speculative-tokens 1 3 5 \\
        --concurrency 1 4 16 64 --sampling greedy sampled

The reference pair is small and was trained on a made-up language, whose questions are the prompts
unless a file is given; its tok/s say little about large models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tools.serving import ReferencePair, ServeOptions, ServingError
from tools.serving.options import MODEL
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.dataset import Dataset, Format
from vllm_eagle3_quarot.benchmarking.files import write_files
from vllm_eagle3_quarot.benchmarking.matrix import Draft, Load, Sampling, ServerSpec
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import report
from vllm_eagle3_quarot.benchmarking.runner import run_matrix
from vllm_eagle3_quarot.benchmarking.summary import document
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.serving.signals import unwinding_on_termination

FLOAT, W8A8, QUAROT = "float", "W8A8", "QuaRot W8A8"

TARGETS = {"float": FLOAT, "w8a8": W8A8, "quarot": QUAROT}

#: On a target that is not rotated there is nothing to correct.
UNROTATED_DRAFTS = (Draft.none, Draft.plain)

DEFAULT_TARGETS = ("w8a8", "quarot")


def servers(pair: ReferencePair, aligned: Path, options: argparse.Namespace) -> list[ServerSpec]:
    """The chosen part of the matrix."""
    folders = {FLOAT: pair.original, W8A8: pair.unrotated, QUAROT: pair.rotated}
    chosen = []
    for target in (TARGETS[name] for name in options.targets):
        for draft in map(Draft, options.drafts):
            if draft is not Draft.none and (target == QUAROT) == (draft in UNROTATED_DRAFTS):
                continue
            folder = aligned if draft is Draft.aligned else pair.draft
            for tokens in [0] if draft is Draft.none else options.speculative_tokens:
                launch = ServeOptions(
                    target=folders[target],
                    draft=None if draft is Draft.none else folder,
                    num_speculative_tokens=tokens,
                    plugin={"mode": draft.mode},
                    max_num_seqs=max(options.concurrency),
                )
                chosen.append(ServerSpec(target, draft, tokens, launch, folders[target], MODEL))
    return chosen


def dataset(pair: ReferencePair, options: argparse.Namespace) -> Dataset:
    """The pair's own questions, or a file."""
    if options.dataset is None:
        return Dataset("the reference pair's", pair.chats)
    return Dataset.read(options.dataset, Format(options.dataset_format))


def run(options: argparse.Namespace) -> None:
    """Measure, print the tables, write the files."""
    pair = ReferencePair.load()
    client = Client(dataset(pair, options), options.prompts, options.output_tokens)
    loads = [
        Load(count, how) for how in map(Sampling, options.sampling) for count in options.concurrency
    ]
    provenance = Provenance.now()
    with tempfile.TemporaryDirectory() as scratch:
        aligned = Path(scratch) / "aligned"
        facts = TargetFacts.from_folder(pair.rotated)
        plan = plan_alignment(DraftFacts(pair.draft), facts, Rotation.from_checkpoint(pair.rotated))
        align(plan, aligned)
        results = run_matrix(
            servers(pair, aligned, options),
            loads,
            client,
            rounds=options.rounds,
            logs=options.output_dir / "logs",
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    summary = document(results, client, provenance)
    files = write_files(summary, options.output_dir)
    print(report(summary))
    print("\n".join(f"wrote {file}" for file in files), file=sys.stderr)


def main() -> int:
    """Return the exit code; a failure is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    drafts = [draft.value for draft in Draft]
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=DEFAULT_TARGETS)
    parser.add_argument("--drafts", nargs="+", choices=drafts, default=drafts)
    parser.add_argument("--speculative-tokens", nargs="+", type=int, default=[3], metavar="K")
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 4])
    parser.add_argument(
        "--sampling", nargs="+", choices=[how.value for how in Sampling], default=["greedy"]
    )
    parser.add_argument("--dataset", type=Path, help="JSON lines (default: the pair's questions)")
    parser.add_argument(
        "--dataset-format", choices=[kind.value for kind in Format], default="mt-bench"
    )
    parser.add_argument("--prompts", type=int, default=16, help="requests per run")
    parser.add_argument("--output-tokens", type=int, default=48, help="per request at most")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output-dir", type=Path, default=Path("bench"))
    try:
        with unwinding_on_termination():
            run(parser.parse_args())
    except ServingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all servers are stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
