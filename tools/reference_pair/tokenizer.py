# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE over the book, saved for the fast and for the slow Qwen2 tokenizer."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, Qwen2TokenizerFast

from tools.reference_pair.corpus import CHAT_TEMPLATE, END, SPECIAL_TOKENS, Book

# The split that the Qwen2 tokenizer classes have built in; training must use the same one.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(book: Book, vocab_size: int, folder: Path) -> PreTrainedTokenizerBase:
    """Train on the book and save to `folder`; `vocab_size` counts the special tokens too."""
    folder.mkdir(parents=True, exist_ok=True)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [article.text for article in book.articles]
    texts += [text for page in book.pages for text in (page.question, page.answer)]
    bpe.train_from_iterator(texts, trainer)
    bpe.model.save(str(folder))
    tokenizer = Qwen2TokenizerFast(
        vocab_file=str(folder / "vocab.json"),
        merges_file=str(folder / "merges.txt"),
        unk_token=END,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=list(SPECIAL_TOKENS[1:]),
        model_max_length=2048,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    if len(tokenizer) != vocab_size:
        raise RuntimeError(f"tokenizer has {len(tokenizer)} entries, wanted {vocab_size}")
    return tokenizer


def encode_book(tokenizer: PreTrainedTokenizerBase, book: Book) -> list[int]:
    """The book as one stream of token ids, an end token after each document."""
    ids: list[int] = []
    for document in book.documents:
        ids += tokenizer(document + END)["input_ids"]
    return ids
