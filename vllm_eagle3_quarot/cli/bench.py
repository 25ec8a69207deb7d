# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot bench``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.dataset import Dataset, Format
from vllm_eagle3_quarot.benchmarking.files import write_files
from vllm_eagle3_quarot.benchmarking.launch import MODEL, PairLaunch
from vllm_eagle3_quarot.benchmarking.matrix import Draft, Load, Sampling, ServerSpec
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import report
from vllm_eagle3_quarot.benchmarking.runner import run_matrix
from vllm_eagle3_quarot.benchmarking.summary import document
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.selected_files import folder_with_tables, whole_folder
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.cli.options import DraftModel, Json, OriginalModel, TargetModel
from vllm_eagle3_quarot.cli.output import reported, show
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.serving.signals import unwinding_on_termination


def bench_command(
    target_model: TargetModel,
    draft_model: DraftModel,
    output: Annotated[
        Path, typer.Option("--output-dir", help="Folder for results and logs.", metavar="FOLDER")
    ] = Path("bench"),
    original_model: OriginalModel = None,
    drafts: Annotated[
        list[Draft] | None,
        typer.Option("--serve", help="What to compare; may be given several times."),
    ] = None,
    speculative_tokens: Annotated[
        list[int] | None, typer.Option("--speculative-tokens", "-k", min=1, help="K.")
    ] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests in flight at most.")
    ] = None,
    sampling: Annotated[list[Sampling] | None, typer.Option(help="How tokens are chosen.")] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="JSON lines with prompts.", metavar="FILE")
    ] = None,
    dataset_format: Annotated[Format, typer.Option(help="Of --dataset.")] = Format.mt_bench,
    category: Annotated[
        str | None, typer.Option(help="Only this category of the set.", metavar="NAME")
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Requests per run.")] = 32,
    output_tokens: Annotated[int, typer.Option(min=2, help="Tokens per request at most.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions, each with new servers.")] = 2,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds that a server has to start.")
    ] = 3600,
    serve_arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Behind --: arguments of `vllm serve`.", metavar="[-- ARGUMENTS]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure speed and acceptance of a pair: start real servers, send prompts, one table.

    Compared are, unless --serve says otherwise: no speculation, the draft uncorrected, and the
    draft corrected at run time. Servers run one after the other; the client is `vllm bench serve`.
    """
    with reported(as_json=as_json), unwinding_on_termination():
        if importlib.util.find_spec("vllm") is None:
            raise ServingError(
                "vLLM is not installed in this environment: bench starts its servers"
            )
        chosen = Dataset.built_in()
        if dataset is not None:
            chosen = Dataset.read(dataset, dataset_format, category)
        client = Client(chosen, prompts, output_tokens)
        provenance = Provenance.now()
        wanted = drafts or [Draft.none, Draft.uncorrected, Draft.runtime]
        loads = [
            Load(count, how)
            for how in sampling or [Sampling.greedy]
            for count in concurrency or [1, 4]
        ]
        with _folders(target_model, draft_model, original_model, wanted) as folders:
            servers = [
                ServerSpec(
                    target=Path(target_model).name,
                    draft=draft,
                    speculative_tokens=tokens,
                    launch=PairLaunch(
                        target_model,
                        folders.get(draft),
                        tokens,
                        _settings(draft, original_model),
                        tuple(serve_arguments or ()),
                    ),
                    tokenizer=target_model,
                    model=MODEL,
                )
                for draft in wanted
                for tokens in ([0] if draft is Draft.none else speculative_tokens or [3])
            ]
            results = run_matrix(
                servers,
                loads,
                client,
                rounds=rounds,
                logs=output / "logs",
                say=lambda line: typer.echo(line, err=True),
                start_timeout=start_timeout,
            )
        summary = document(results, client, provenance)
        written = [f"wrote {path}" for path in write_files(summary, output)]
        show(summary, [report(summary), "", *written], as_json=as_json)


def _settings(draft: Draft, original_model: str | None) -> dict[str, object]:
    settings: dict[str, object] = {"mode": draft.mode}
    if original_model is not None:
        settings["original_model"] = original_model
    return settings


@contextmanager
def _folders(
    target: str, draft: str, original_model: str | None, wanted: list[Draft]
) -> Iterator[dict[Draft, str]]:
    """What is served as the draft; an aligned one is made for the time of the run."""
    folders = dict.fromkeys(Draft, draft)
    del folders[Draft.none]
    if Draft.aligned not in wanted:
        yield folders
        return
    with TemporaryDirectory() as scratch:
        facts = TargetFacts.from_folder(folder_with_tables(target))
        original = None
        if original_model is not None:
            original = TargetFacts.from_folder(folder_with_tables(original_model))
        plan = plan_alignment(
            DraftFacts(whole_folder(draft)), facts, Rotation.from_checkpoint(facts.folder), original
        )
        aligned = Path(scratch) / "aligned"
        align(plan, aligned)
        yield {**folders, Draft.aligned: str(aligned)}
