"""Every combination of the alternatives, over all questions: `wtb batch run examples/support_qa/batch.py`."""

from pathlib import Path

import pipeline
from evaluators import ReciprocalRank, RetrievalHit
from pipeline import flow

import wtb


def register_variants(flow: wtb.Workflow) -> None:
    """Offer the alternatives to what the workflow does by itself: plain, bm25, none and first_sentence."""
    flow.add_variant("rewrite", "expand", pipeline.expand)
    flow.add_variant("retrieve", "tfidf", pipeline.tfidf)
    flow.add_variant("retrieve", "chargrams", pipeline.chargrams)
    flow.add_variant("retrieve", "lsa", pipeline.lsa)
    flow.add_variant("retrieve", "hybrid", pipeline.hybrid)
    flow.add_variant("rerank", "overlap", pipeline.overlap)
    flow.add_variant("answer", "best_sentence", pipeline.best_sentence)


def make_batch(flow: wtb.Workflow) -> wtb.BatchTest:
    """Return 2 × 5 × 2 × 2 = 40 combinations over 90 questions, compared with the workflow as it is."""
    return wtb.BatchTest(
        flow,
        name="support_qa",
        cases=Path(__file__).parent / "cases.jsonl",
        variants="all",
        baseline={},
        evaluators=[wtb.TokenF1("answer"), RetrievalHit(k=3), ReciprocalRank(), wtb.Latency()],
    )


# Before the first question: otherwise the latency of whichever comes first contains the making of an index.
pipeline.make_indexes()
register_variants(flow)
batch = make_batch(flow)
