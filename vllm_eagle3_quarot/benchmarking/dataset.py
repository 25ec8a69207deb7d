# SPDX-License-Identifier: Apache-2.0
"""Prompts from files in the formats in which the field publishes its sets, or a small set of ours.

Every prompt is one user message, so that the server's own chat template is applied. Of sets with
several turns the first is taken, as ``vllm bench serve`` does for spec_bench. Nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vllm_eagle3_quarot.errors import CheckpointError


class Format(str, Enum):
    """Sets by their names, as JSON lines."""

    mt_bench = "mt-bench"
    humaneval = "humaneval"
    gsm8k = "gsm8k"
    spec_bench = "spec-bench"


def _first_turn(row: Mapping[str, object]) -> object:
    turns = row["turns"]
    return turns[0] if isinstance(turns, list) and turns else None


#: How a row becomes a prompt: question.jsonl of MT-Bench and Spec-Bench (a list ``turns``),
#: HumanEval.jsonl (``prompt``, the head of a function), GSM8K's train.jsonl and test.jsonl.
PROMPT_OF: Mapping[Format, Callable[[Mapping[str, object]], object]] = {
    Format.mt_bench: _first_turn,
    Format.spec_bench: _first_turn,
    Format.humaneval: lambda row: f"Complete this function.\n\n{row['prompt']}",
    Format.gsm8k: lambda row: row["question"],
}

BUILT_IN = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "List the steps to change the tyre of a bicycle.",
    "What is the difference between a process and a thread? Give an example of each.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "A train travels 180 km in 2.5 hours. How long does it take for 300 km at the same speed?",
    "Translate into German: The meeting was moved to Thursday because of the storm.",
    "Summarise the plot of a fairy tale of your choice in five sentences.",
    "What has to be kept in mind when storing fresh vegetables?",
    "Write a polite e-mail that asks a neighbour to water the plants for two weeks.",
    "Explain how a binary search works and what its running time is.",
    "There are 24 pupils in a class. Three eighths of them play football. How many do not?",
    "Name three causes of inflation and explain one of them.",
    "Write a regular expression for dates like 2024-05-31 and explain its parts.",
    "Describe a rainy day in a big city without using the word rain.",
    "Compare electric cars with petrol cars in a short table.",
)
"""For machines without any of the sets. Written for this purpose."""


@dataclass(frozen=True)
class Dataset:
    """Prompts with the name of where they are from."""

    name: str
    prompts: tuple[str, ...]

    @classmethod
    def built_in(cls) -> Dataset:
        """The small set of this package."""
        return cls("built-in", BUILT_IN)

    @classmethod
    def read(cls, file: Path, kind: Format, category: str | None = None) -> Dataset:
        """Read a set's JSON lines; of spec_bench only one ``category`` where it is given.

        Raises:
            CheckpointError: the file cannot be read, or is not in that format.
        """
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from None
        prompts = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if category is not None and row.get("category") != category:
                    continue
                prompt = PROMPT_OF[kind](row)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CheckpointError(
                    f"{file}, line {number}: not a row of {kind.value} ({error!r}). Name the "
                    f"file's format: one of {', '.join(each.value for each in Format)}"
                ) from None
            if not isinstance(prompt, str) or not prompt:
                raise CheckpointError(f"{file}, line {number}: there is no prompt in this row")
            prompts.append(prompt)
        if not prompts:
            wanted = f" of category {category!r}" if category else ""
            raise CheckpointError(f"{file} has no rows{wanted}")
        return cls(kind.value + (f" ({category})" if category else ""), tuple(prompts))

    def write(self, file: Path, count: int) -> None:
        """Write ``count`` prompts, repeated in order where there are fewer, for the client.

        The format is ShareGPT's, the one that ``vllm bench serve`` reads without further packages.
        Its second turn says nothing: the number of tokens to make is an argument.
        """
        chosen = [self.prompts[index % len(self.prompts)] for index in range(count)]
        file.write_text(json.dumps(_conversations(chosen)), encoding="utf-8")


def _conversations(prompts: Sequence[str]) -> list[dict[str, object]]:
    return [
        {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": "..."}]}
        for prompt in prompts
    ]
