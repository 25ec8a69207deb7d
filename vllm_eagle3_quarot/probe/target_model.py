# SPDX-License-Identifier: Apache-2.0
"""A target that runs: transformers' model of its architecture, with float weights.

Code that a checkpoint brings along is never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import ProbeError
from vllm_eagle3_quarot.probe.transformers_library import imported_transformers
from vllm_eagle3_quarot.probe.weights import parameter_count, target_weights

#: Above, a probe takes minutes per prompt, which is what it is there to avoid.
MOST_PARAMETERS = 3_000_000_000

#: Bytes per parameter while loading: fp32, once as read and once in the model.
BYTES_PER_PARAMETER = 8

#: Entries of a configuration by which modules are multiplied.
MODULE_COUNTS = ("num_hidden_layers", "num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class Observation:
    """What a target said and thought about one prompt.

    Attributes:
        tokens: prompt and greedy continuation, int64 ``[T]``.
        prompt: number of tokens of the prompt.
        states: aux hidden states fp32 ``[T, A·H]``; the post-norm state for a draft without any.
    """

    tokens: torch.Tensor
    prompt: int
    states: torch.Tensor


class TargetModel:
    """A target in memory.

    Raises:
        ProbeError: it is too large, its architecture or its format is not known, or transformers
            is not installed.
        CheckpointError: a file is broken.
    """

    def __init__(self, facts: TargetFacts) -> None:
        _refuse_large(facts)
        transformers = imported_transformers()
        self._facts = facts
        try:
            config = transformers.AutoConfig.from_pretrained(
                facts.folder, trust_remote_code=False, local_files_only=True
            )
            if hasattr(config, "quantization_config"):
                del config.quantization_config  # the weights are floats by now
            _refuse_more_modules_than_tensors(facts, config.get_text_config())
            with torch.device("meta"):
                empty = transformers.AutoModelForCausalLM.from_config(config)
            kind = type(empty)
            _refuse_made_up(facts, sum(each.numel() for each in empty.parameters()))
            self._model, info = kind.from_pretrained(
                None,
                config=config,
                state_dict=target_weights(facts),
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
            )
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                facts.folder, trust_remote_code=False, local_files_only=True
            )
        except ProbeError:
            raise
        # transformers raises whatever its parts raise on a configuration that they do not expect.
        except Exception as error:
            raise ProbeError(
                f"{facts.folder}: transformers {transformers.__version__} cannot load it "
                f"({type(error).__name__}: {_first_line(error)})"
            ) from error
        self._verify(info)
        self._model.eval()

    def encode(self, prompt: str, *, as_chat: bool = False) -> torch.Tensor:
        """Token ids int64 ``[T]``; ``as_chat`` puts it into the chat template, if there is one."""
        text = prompt
        if as_chat and self._tokenizer.chat_template:
            turns = [{"role": "user", "content": prompt}]
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True
            )
        special = not (as_chat and self._tokenizer.chat_template)
        ids = self._tokenizer(text, add_special_tokens=special)["input_ids"]
        return torch.tensor(ids, dtype=torch.int64)

    @torch.no_grad()
    def observe(
        self, prompt: torch.Tensor, continuation: int, layers: Sequence[int]
    ) -> Observation:
        """Continue ``prompt`` ``[T]`` greedily and look at ``layers``, or at the post-norm state.

        Layer ``k`` is the residual stream before layer ``k`` counted from zero, as in vLLM.
        """
        tokens = self._continued(prompt, continuation)
        last: list[torch.Tensor] = []
        norm = getattr(self._model.get_decoder(), "norm", None)
        hook = None
        if norm is not None:
            hook = norm.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
        try:
            output = self._model(tokens[None], output_hidden_states=True, use_cache=False)
        finally:
            if hook is not None:
                hook.remove()
        hidden = [state[0].float() for state in output.hidden_states]
        if not layers:
            return Observation(tokens, len(prompt), hidden[-1])
        # The last one of transformers' list is the post-norm state; a draft takes what was before.
        if last:
            hidden[-1] = last[0][0].float()
        elif max(layers) == len(hidden) - 1:
            raise ProbeError(f"{self._facts.folder}: the final norm was not found in the model")
        return Observation(tokens, len(prompt), torch.cat([hidden[k] for k in layers], dim=-1))

    def embedding(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of the stored table, fp32 ``[T, H]``."""
        weight: torch.Tensor = self._model.get_input_embeddings().weight
        return weight[tokens].detach().float()

    def head(self) -> torch.Tensor:
        """The stored head, fp32 ``[V, H]``."""
        weight: torch.Tensor = self._model.get_output_embeddings().weight
        return weight.detach().float()

    def _continued(self, prompt: torch.Tensor, count: int) -> torch.Tensor:
        ends = self._model.config.get_text_config().eos_token_id
        settings = imported_transformers().GenerationConfig(
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=ends,
            pad_token_id=ends[0] if isinstance(ends, list) else ends,
        )
        output: torch.Tensor = self._model.generate(
            prompt[None], attention_mask=torch.ones_like(prompt[None]), generation_config=settings
        )
        return output[0]

    def _verify(self, info: Any) -> None:
        """Refuse a model of which parameters were made up, or weights were left out."""
        missing = sorted(info["missing_keys"]) + [str(key) for key in info["mismatched_keys"]]
        if missing:
            raise ProbeError(
                f"{self._facts.folder}: {len(missing)} parameters of {type(self._model).__name__} "
                f"are not in the checkpoint ({missing[0]} ...)"
            )
        modules = {name for name, _ in self._model.named_modules()}
        left = [name for name in info["unexpected_keys"] if name.rpartition(".")[0] in modules]
        if left:
            raise ProbeError(
                f"{self._facts.folder}: {type(self._model).__name__} has no place for "
                f"{len(left)} stored tensors ({sorted(left)[0]} ...)"
            )


def _refuse_large(facts: TargetFacts) -> None:
    count = parameter_count(facts.tensors)
    if count > MOST_PARAMETERS:
        raise ProbeError(
            f"{facts.folder}: {count / 1e9:.1f}e9 parameters; a probe takes targets of up to "
            f"{MOST_PARAMETERS / 1e9:.0f}e9. Probe a small model of the same family, or serve it"
        )
    available = _available_memory()
    if available is not None and count * BYTES_PER_PARAMETER > available:
        raise ProbeError(
            f"{facts.folder}: {count * BYTES_PER_PARAMETER / 2**30:.1f} GiB of memory are needed, "
            f"{available / 2**30:.1f} are available"
        )


def _refuse_more_modules_than_tensors(facts: TargetFacts, config: Any) -> None:
    """Keep a number in a stranger's configuration from making modules without end."""
    for key in MODULE_COUNTS:
        value = getattr(config, key, None)
        if isinstance(value, int) and value > len(facts.tensors.files):
            raise ProbeError(
                f"{facts.folder}: '{key}' is {value}, of {len(facts.tensors.files)} stored tensors"
            )


def _refuse_made_up(facts: TargetFacts, wanted: int) -> None:
    """Keep it from making weights that are not in the checkpoint; tied tables count twice."""
    stored = parameter_count(facts.tensors)
    if wanted > 2 * stored:
        raise ProbeError(
            f"{facts.folder}: the configuration asks for {wanted} parameters, {stored} are stored"
        )


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None  # not Linux: try it
    kibibytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kibibytes[0]) * 1024 if kibibytes else None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
