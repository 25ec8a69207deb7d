# SPDX-License-Identifier: Apache-2.0
"""Share of our operators in a draft step, by torch's profiler: ``python -m benchmarks.overhead``.

vLLM's own CPU engine in bf16, with random weights: a rotated target, and a draft of one layer with
the proportions of published ones (MLP of 3 H, heads of 128 channels, 32000 words). A draft step is
one call of the engine's proposer: the states of all tokens verified before are combined, then K = 3
tokens are drafted. Counted are all operators of this package that run in it, with what they replace
(a look-up is one operator of ours, whose gathering the host would have to do as well).

A larger head makes the step longer and the share smaller; the target is narrow, it is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.own_process import answer, answer_of
from benchmarks.results import save
from tests.support.checkpoints import POINTER, embedding, write_json, write_sidecar
from tests.support.drafts import DraftSpec
from tests.support.proposals import ENVIRONMENT
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import table

STEP = "draft step"
OURS = "eagle3_quarot::"

VOCABULARY = 32000
HEAD_DIM = 128
LAYERS = 3

#: The draft's own tables, and what is corrected then.
DRAFTS = {
    "own embedding and head": True,
    "target's embedding and head": False,
}


@dataclass(frozen=True)
class Profile:
    """What the profiler saw.

    Attributes:
        hidden: H.
        draft: whose tables it uses.
        sequences: decoded together.
        steps: draft steps.
        step_ms: mean length of one.
        ours_us: mean time of our operators in one.
        operators: calls of each of ours per step.
    """

    hidden: int
    draft: str
    sequences: int
    steps: int
    step_ms: float
    ours_us: float
    operators: dict[str, float]

    @property
    def share(self) -> float:
        """Of our operators in the step."""
        return self.ours_us / (1000 * self.step_ms)


def write_pair(folder: Path, hidden: int, own_tables: bool) -> None:
    """A rotated target by its own account, a draft, and an original with a final norm."""
    generator = torch.Generator().manual_seed(5)

    def weight(rows: int, columns: int) -> torch.Tensor:
        drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float32)
        return (drawn * columns**-0.5).bfloat16()

    heads, kv_heads, intermediate = hidden // HEAD_DIM, 4, 512
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    tensors = {
        "model.embed_tokens.weight": weight(VOCABULARY, hidden),
        "model.norm.weight": ones,
        "lm_head.weight": weight(VOCABULARY, hidden),
    }
    for number in range(LAYERS):
        name = f"model.layers.{number}."
        tensors |= {
            name + "input_layernorm.weight": ones.clone(),
            name + "post_attention_layernorm.weight": ones.clone(),
            name + "self_attn.q_proj.weight": weight(heads * HEAD_DIM, hidden),
            name + "self_attn.k_proj.weight": weight(kv_heads * HEAD_DIM, hidden),
            name + "self_attn.v_proj.weight": weight(kv_heads * HEAD_DIM, hidden),
            name + "self_attn.o_proj.weight": weight(hidden, heads * HEAD_DIM),
            name + "self_attn.q_norm.weight": torch.ones(HEAD_DIM, dtype=torch.bfloat16),
            name + "self_attn.k_norm.weight": torch.ones(HEAD_DIM, dtype=torch.bfloat16),
            name + "mlp.gate_proj.weight": weight(intermediate, hidden),
            name + "mlp.up_proj.weight": weight(intermediate, hidden),
            name + "mlp.down_proj.weight": weight(hidden, intermediate),
        }
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    for name in ("target", "original"):
        (folder / name).mkdir(parents=True)
        write_json(folder / name / "config.json", config)
    save_file(tensors, folder / "target" / "model.safetensors", metadata={"format": "pt"})
    description: dict[str, Any] = {name: "FLOAT" for name in tensors}
    description |= {"version": "1.0.0", "model_quant_type": "FLOAT", "optional": POINTER}
    write_json(folder / "target" / "quant_model_description.json", description)
    write_sidecar(folder / "target", real_rotation(hidden))
    norm = {"model.norm.weight": torch.linspace(0.5, 1.5, hidden).bfloat16()}
    save_file(norm, folder / "original" / "model.safetensors", metadata={"format": "pt"})
    spec = DraftSpec(
        hidden=hidden,
        vocabulary=VOCABULARY,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        intermediate=3 * hidden,
        own_embedding=own_tables,
        own_head=own_tables,
        extra={"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "torch_dtype": "bfloat16"},
    )
    # A table of random entries would be taken for one that was never trained.
    own = embedding(VOCABULARY, hidden, seed=8) if own_tables else None
    spec.write(folder / "draft", own, torch.bfloat16)


def profile(folder: Path, sequences: int, tokens: int) -> dict[str, Any]:
    """Serve random tokens in this process and look at the draft steps."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiler
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder / "target"),
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=sequences,
        distributed_executor_backend="uni",
        speculative_config={
            "method": "eagle3",
            "model": str(folder / "draft"),
            "num_speculative_tokens": 3,
        },
        additional_config={"eagle3_quarot": {"original_model": str(folder / "original")}},
    )
    drafter = _drafter(engine)
    propose = drafter.propose

    def recorded(*arguments: Any, **options: Any) -> Any:
        with record_function(STEP):
            return propose(*arguments, **options)

    drafter.propose = recorded
    parameters = SamplingParams(
        temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False
    )
    prompts: list[Any] = [
        {"prompt_token_ids": list(range(10 + number, 42 + number))} for number in range(sequences)
    ]
    engine.generate(prompts, parameters, use_tqdm=False)
    with profiler(activities=[ProfilerActivity.CPU]) as seen:
        engine.generate(prompts, parameters, use_tqdm=False)
    events = seen.events() or []
    steps = [event for event in events if event.name == STEP]
    ours = [event for event in events if event.name.startswith(OURS) and _counts(event)]
    names = sorted({event.name for event in ours})
    return {
        "steps": len(steps),
        "step_ms": sum(event.cpu_time_total for event in steps) / len(steps) / 1000,
        "ours_us": sum(event.cpu_time_total for event in ours) / len(steps),
        "operators": {
            name: sum(event.name == name for event in ours) / len(steps) for name in names
        },
    }


def _drafter(engine: Any) -> Any:
    worker = engine.llm_engine.model_executor.driver_worker
    runner = getattr(worker, "worker", worker).model_runner
    return runner.drafter


def _ancestors(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _counts(event: Any) -> bool:
    """True within a draft step, for an operator that no other of ours has called."""
    names = [each.name for each in _ancestors(event)]
    return STEP in names and not any(name.startswith(OURS) for name in names)


def measure(hidden: int, draft: str, counts: Sequence[int], tokens: int) -> Iterator[Profile]:
    """One pair, and an engine for every number of sequences, each in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        write_pair(Path(name), hidden, DRAFTS[draft])
        for sequences in counts:
            answer = _profiled(Path(name), sequences, tokens)
            yield Profile(hidden, draft, sequences, **answer)


def _profiled(folder: Path, sequences: int, tokens: int) -> dict[str, Any]:
    arguments = ["benchmarks.overhead", "--profile", str(folder)]
    arguments += ["--sequences", str(sequences), "--tokens", str(tokens)]
    return answer_of(arguments, ENVIRONMENT, f"the engine of {folder}")


HEADER = ["H", "draft uses", "sequences", "draft step ms", "ours µs", "share %", "calls per step"]


def cells(found: Profile) -> list[str]:
    """One line of the table."""
    operators = ", ".join(
        f"{name.removeprefix(OURS)} {calls:.2g}" for name, calls in found.operators.items()
    )
    return [
        str(found.hidden),
        found.draft,
        str(found.sequences),
        f"{found.step_ms:.1f}",
        f"{found.ours_us:.0f}",
        f"{100 * found.share:.2f}",
        operators,
    ]


def main() -> None:
    """Measure, print the table, write the numbers on request."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[2048, 4096], metavar="H")
    parser.add_argument("--drafts", nargs="+", choices=DRAFTS, default=list(DRAFTS))
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=8, help="decoded per sequence")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--profile", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.profile is not None:
        answer(profile(options.profile, options.sequences[0], options.tokens))
        return
    provenance = Provenance.now()
    found = []
    for hidden in options.hidden:
        for draft in options.drafts:
            for profiled in measure(hidden, draft, options.sequences, options.tokens):
                found.append(profiled)
                print(table(HEADER, [cells(found[-1])]), flush=True)
    print(table(HEADER, [cells(each) for each in found]))
    if options.json is not None:
        rows = [{**asdict(each), "share": each.share} for each in found]
        save(options.json, provenance, {"rows": rows})


if __name__ == "__main__":
    main()
