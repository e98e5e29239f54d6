"""What is particular to retrieval: whether the expected document was found, and how far up."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RetrievalHit:
    """1 if the expected document is among the first k, else 0."""

    k: int = 3

    @property
    def name(self) -> str:
        """Return the name of the metric: `hit@3`."""
        return f"hit@{self.k}"

    def evaluate(self, context: Any) -> float:
        """Look for the expected document in the order that reranking left."""
        return float(context.expected["document"] in context.state["documents"][: self.k])


@dataclass(frozen=True)
class ReciprocalRank:
    """1 for the expected document in the first place, ½ in the second, ⅓ in the third, 0 if it was not found."""

    name: str = "reciprocal_rank"

    def evaluate(self, context: Any) -> float:
        """Look for the expected document in the order that reranking left."""
        expected, documents = context.expected["document"], context.state["documents"]
        return 1 / (documents.index(expected) + 1) if expected in documents else 0.0
