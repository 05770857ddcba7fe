"""A text: a small GPT on the pages of this project's documentation, a page a client, character by character."""

from pathlib import Path

import torch

import fedmuon_app as fm
from fedmuon_app.models.gpt import GPT

LENGTH = 64
pages = [page.read_text() for page in sorted((Path(__file__).parents[1] / "docs").glob("*.md"))]
number = {character: k for k, character in enumerate(sorted(set("".join(pages))))}


def windows(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of LENGTH characters, and the characters that follow each."""
    both = torch.tensor([number[c] for c in text]).unfold(0, LENGTH + 1, LENGTH)
    return both[:, :-1].clone(), both[:, 1:].clone()


run = fm.train(
    GPT(len(number), layers=1, width=64),
    clients=[windows(page[: len(page) * 9 // 10]) for page in pages],
    test=windows("".join(page[len(page) * 9 // 10 :] for page in pages)),
    task="language_model",
    rounds=20,
    steps=5,
    batch_size=16,
    lr=0.02,
    overrides=["algorithm.vector_lr=0.2", "evaluation.every=5"],
)
print(run.log[["round", "test_loss", "test_accuracy", "test_perplexity"]].to_string(index=False))
