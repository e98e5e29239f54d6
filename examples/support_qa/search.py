"""The help centre and four ways to search it; what an index holds is counted once, when it is made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import Any

from text import words

Scores = dict[str, float]
"""Documents that have anything in common with a query, and how much."""


@dataclass(frozen=True)
class Document:
    """A page of the help centre."""

    id: str
    title: str
    text: str


def read_documents(path: Path) -> dict[str, Document]:
    """Return the documents of a JSONL file by their ids."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {document.id: document for document in (Document(**json.loads(line)) for line in lines)}


DOCUMENTS = read_documents(Path(__file__).parent / "documents.jsonl")
"""Read at import and not when first searched: WTB then sees them as part of every node that uses them, and an edited
document is searched anew instead of being answered from the node cache."""

TEXTS = {document.id: f"{document.title}\n{document.text}" for document in DOCUMENTS.values()}


def inverse_frequencies(counts: Mapping[str, Counter[str]]) -> dict[str, float]:
    """Return how much it says that a text has a term: the rarer, the more."""
    in_texts = Counter(term for counted in counts.values() for term in counted)
    return {term: log(1 + (len(counts) - n + 0.5) / (n + 0.5)) for term, n in in_texts.items()}


class Bm25:
    """Okapi BM25 over words: a word counts by its rarity, less with each repetition and in longer texts."""

    def __init__(self, texts: Mapping[str, str], k1: float = 1.2, b: float = 0.75) -> None:
        counts = {id: Counter(words(text)) for id, text in texts.items()}
        rarity = inverse_frequencies(counts)
        average = sum(counted.total() for counted in counts.values()) / len(counts)
        self.weights = {
            id: {
                term: rarity[term] * n * (k1 + 1) / (n + k1 * (1 - b + b * counted.total() / average))
                for term, n in counted.items()
            }
            for id, counted in counts.items()
        }

    def scores(self, query: str) -> Scores:
        """Score every text that has a word of the query."""
        terms = words(query)
        scores = {id: sum(weights.get(term, 0.0) for term in terms) for id, weights in self.weights.items()}
        return {id: score for id, score in scores.items() if score > 0}


class TfIdf:
    """TF-IDF with cosine similarity, over words or over any other terms."""

    def __init__(self, texts: Mapping[str, str], terms: Callable[[str], list[str]] = words) -> None:
        self.terms = terms
        counts = {id: Counter(terms(text)) for id, text in texts.items()}
        self.rarity = inverse_frequencies(counts)
        self.vectors = {id: self._unit(counted) for id, counted in counts.items()}

    def vector(self, text: str) -> dict[str, float]:
        """Return a text as a vector of length one; terms that no document has are left out."""
        return self._unit(Counter(self.terms(text)))

    def scores(self, query: str) -> Scores:
        """Score every text that has a term of the query."""
        wanted = self.vector(query)
        scores = {id: cosine(wanted, vector) for id, vector in self.vectors.items()}
        return {id: score for id, score in scores.items() if score > 0}

    def _unit(self, counts: Counter[str]) -> dict[str, float]:
        weights = {term: (1 + log(n)) * self.rarity[term] for term, n in counts.items() if term in self.rarity}
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {term: weight / length for term, weight in weights.items()}


def cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the cosine of the angle between two vectors of length one."""
    return sum(weight * other.get(term, 0.0) for term, weight in one.items())


class Lsa:
    """Latent semantic analysis: TF-IDF vectors folded into few dimensions, where words that go together are close."""

    def __init__(self, texts: Mapping[str, str], dimensions: int = 24) -> None:
        import numpy as np

        self.tf_idf = TfIdf(texts)
        self.column = {term: at for at, term in enumerate(sorted(self.tf_idf.rarity))}
        self.ids = list(texts)
        matrix = np.stack([self._row(self.tf_idf.vectors[id]) for id in self.ids])
        self.axes = np.linalg.svd(matrix, full_matrices=False)[2][:dimensions]
        self.rows = unit_rows(matrix @ self.axes.T)

    def scores(self, query: str) -> Scores:
        """Score every text by the angle between it and the query, with few dimensions to tell them apart."""
        folded = unit_rows(self._row(self.tf_idf.vector(query)) @ self.axes.T)
        return {id: float(score) for id, score in zip(self.ids, self.rows @ folded, strict=True) if score > 0}

    def _row(self, vector: Mapping[str, float]) -> Any:
        import numpy as np

        row = np.zeros(len(self.column))
        for term, weight in vector.items():
            row[self.column[term]] = weight
        return row


def unit_rows(matrix: Any) -> Any:
    """Scale a vector, or each row of a matrix, to length one; zeros stay zeros."""
    import numpy as np

    length = np.linalg.norm(matrix, axis=-1, keepdims=True)
    return matrix / np.where(length == 0, 1, length)
