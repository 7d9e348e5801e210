# SPDX-License-Identifier: Apache-2.0
"""IMDB reviews: does the reader like the film? An LSTM with 1,081,002 parameters.

A review becomes the last 256 of its tokens, which are lower-case words. The vocabulary has 10,000 entries:
four special tokens and the 9,996 most frequent words. Which words those are depends on the reviews that are
counted, and no epsilon covers that choice when they are the training reviews themselves ("train", as is
usual). Count the unlabelled reviews that are published beside them, or name a file with a list of words of
your own, and nothing is read from the training reviews but their tokens.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ggdp_paper.tasks.task import Defaults, Request, Task, initialised, located, synthetic_variant

PUBLISHED = "https://ai.stanford.edu/~amaas/data/sentiment/"
DEFAULTS = Defaults(
    batch_size=512, clip_norm=0.1, learning_rate=4.0, momentum=0.9, epochs=25, score_batch_size=256
)
VOCABULARY = 10_000
LENGTH = 256
FEATURES = 100
SPECIAL = ("<pad>", "<start>", "<unknown>", "<end>")
PAD, START, UNKNOWN, END = range(len(SPECIAL))
CAVEAT = (
    "the vocabulary was counted in the training reviews, which epsilon does not cover; "
    "count the unlabelled reviews, or give a list of words, to read nothing from them"
)

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def load(request: Request) -> Task:
    """25,000 reviews for training and 25,000 for the score."""
    if request.synthetic is not None:
        return synthetic_variant(Task("imdb", *_synthetic(request), build, DEFAULTS), batch_size=32)
    folder = request.folder("imdb", holding="the folder aclImdb", published=PUBLISHED)
    root = located(folder, ("aclImdb", "train"), published=PUBLISHED)
    root = root if root.name == "aclImdb" else folder
    train = _labelled(root, "train")
    indices = _indices(root, request.vocabulary, train)
    parts = [
        TensorDataset(
            torch.stack([encoded(text, indices) for text, _ in part]).to(request.device),
            torch.tensor([label for _, label in part]).to(request.device),
        )
        for part in (train, _labelled(root, "test"))
    ]
    caveats = (CAVEAT,) if request.vocabulary == "train" else ()
    return Task("imdb", parts[0], parts[1], build, DEFAULTS, caveats=caveats)


class ReviewClassifier(nn.Module):
    """Embedding, LSTM, the mean of its states over time, a linear layer: [N, length] -> [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.recurrent = nn.LSTM(FEATURES, FEATURES, batch_first=True)
        self.classifier = nn.Linear(FEATURES, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the two classes."""
        states, _ = self.recurrent(self.embedding(tokens))
        scores: Tensor = self.classifier(states.mean(dim=1))
        return scores


def build(generator: torch.Generator) -> nn.Module:
    """10,000 * 100 + 80,800 + 202 = 1,081,002 parameters."""
    return initialised(ReviewClassifier, generator)


def words(text: str) -> list[str]:
    """Lower-case words; mark-up and punctuation are dropped.

    >>> words("It's GREAT!<br />10/10")
    ["it's", 'great', '10', '10']
    """
    return _WORD.findall(text.lower().replace("<br />", " "))


def encoded(text: str, indices: Mapping[str, int]) -> Tensor:
    """The last 256 tokens of start, words and end; shorter reviews are filled up in front."""
    tokens = [START, *(indices.get(word, UNKNOWN) for word in words(text)), END][-LENGTH:]
    return torch.tensor([PAD] * (LENGTH - len(tokens)) + tokens)


def most_frequent(texts: Iterable[str]) -> list[str]:
    """The words of the vocabulary, most frequent first; equally frequent ones by the alphabet."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, _ in ranked[: VOCABULARY - len(SPECIAL)]]


def _indices(root: Path, vocabulary: str | Path, train: list[tuple[str, int]]) -> dict[str, int]:
    if vocabulary == "train":
        chosen = most_frequent(text for text, _ in train)
    elif vocabulary == "unlabelled":
        chosen = most_frequent(_texts(located(root, ("train/unsup",), published=PUBLISHED)))
    else:
        lines = Path(vocabulary).read_text(encoding="utf-8").splitlines()
        chosen = list(dict.fromkeys(line.strip().lower() for line in lines if line.strip()))
        chosen = chosen[: VOCABULARY - len(SPECIAL)]
    if not chosen:
        raise ValueError(f"vocabulary must hold at least one word, got none from {str(vocabulary)!r}")
    return {word: place for place, word in enumerate(chosen, start=len(SPECIAL))}


def _labelled(root: Path, split: str) -> list[tuple[str, int]]:
    found = []
    for label, kind in enumerate(("neg", "pos")):
        folder = located(root, (f"{split}/{kind}",), published=PUBLISHED)
        found += [(text, label) for text in _texts(folder)]
    return found


def _texts(folder: Path) -> Iterator[str]:
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise ValueError(f"expected reviews *.txt in {str(folder)!r}, got none; published at {PUBLISHED}")
    return (file.read_text(encoding="utf-8") for file in files)


def _synthetic(request: Request) -> tuple[TensorDataset, TensorDataset]:
    """Random words, a third of them from a small list of the class's own."""
    generator = request.synthetic

    def drawn(number: int) -> TensorDataset:
        labels = torch.arange(number) % 2
        tokens = torch.randint(200, 1000, (number, LENGTH), generator=generator)
        telling = torch.randint(20, (number, LENGTH), generator=generator) + 100 + 20 * labels[:, None]
        chosen = torch.rand(number, LENGTH, generator=generator) < 1.0 / 3.0
        return TensorDataset(
            torch.where(chosen, telling, tokens).to(request.device), labels.to(request.device)
        )

    return drawn(96), drawn(64)
