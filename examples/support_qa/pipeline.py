"""Answers questions from a help centre: rewrite → retrieve → rerank → answer, and alternatives for each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

from search import DOCUMENTS, TEXTS, Bm25, Document, Lsa, Scores, TfIdf
from text import character_grams, sentences, spoken_words, words

import wtb

State = Mapping[str, Any]
Update = dict[str, Any]

flow = wtb.Workflow("support_qa", description="Answers questions from the help centre of Wrenpad")

FOUND = 10
"""Documents that retrieval hands on."""

READ = 3
"""Documents that an answer is looked for in."""

ASKS_NUMBER = re.compile(r"\bhow (long|many|much|big|large|often|fast|soon)\b|\blimit|\bmaximum\b|\bsize\b")
HAS_NUMBER = re.compile(r"\d")

SYNONYMS = {
    "bill": "invoice invoices",
    "bills": "invoice invoices",
    "receipt": "invoice invoices",
    "receipts": "invoice invoices",
    "money back": "refund refunds returned",
    "reimbursed": "refund refunds returned",
    "reimbursement": "refund refunds returned",
    "cost": "price prices costs",
    "expensive": "price prices costs",
    "fee": "price prices costs",
    "cheaper": "discount price",
    "quit": "cancel subscription",
    "unsubscribe": "cancel subscription",
    "stop paying": "cancel subscription",
    "terminate": "cancel subscription",
    "credit card": "card payment",
    "debited": "charge charged payment",
    "ngo": "charities non profit",
    "student": "students school university",
    "college": "school university",
    "user": "member members",
    "users": "members",
    "people": "members",
    "employee": "member members",
    "employees": "members",
    "staff": "members",
    "colleague": "member members",
    "client": "guest guests",
    "contractor": "guest guests",
    "external": "guest guests outside",
    "boss": "owner admin",
    "rights": "permissions roles",
    "access": "permissions sign",
    "log in": "sign signing",
    "login": "sign signing",
    "logged in": "signed sign",
    "logged out": "sign session",
    "log out": "sign out devices",
    "2fa": "two factor authentication",
    "mfa": "two factor authentication",
    "authenticator": "two factor authentication",
    "smartphone": "phone phones mobile",
    "cell": "phone phones mobile",
    "tablet": "tablets mobile",
    "laptop": "desktop",
    "computer": "desktop",
    "internet": "connection offline",
    "plane": "connection offline",
    "alerts": "notifications",
    "pings": "notifications",
    "emails": "e mail notifications",
    "newsletter": "summary",
    "page": "note",
    "pages": "notes",
    "bin": "trash deleted",
    "removed": "deleted",
    "undelete": "restore trash deleted",
    "recover": "restore trash deleted",
    "undo": "restore version history",
    "previous": "earlier versions history",
    "upload": "attach file files attachments",
    "photo": "picture pictures attachments",
    "photos": "picture pictures attachments",
    "disk": "storage",
    "quota": "storage limit limits",
    "backup": "export backups",
    "save a copy": "export",
    "download": "export downloaded",
    "migrate": "import",
    "spreadsheet": "csv excel table",
    "throttled": "limits requests",
    "rate limit": "limits requests",
    "token": "key keys api",
    "down": "outages status",
    "downtime": "outages maintenance status",
    "uptime": "guarantee outages status",
    "privacy": "data protection personal",
    "hosted": "stored data region",
    "servers": "stored data region",
    "hacked": "security device password",
    "vulnerability": "security hole",
    "phone number": "telephone number support",
    "contact": "support",
    "help desk": "support",
    "blind": "screen readers accessibility",
    "shortcut": "keyboard shortcuts",
}
"""What customers say, and what the help centre says for it. Written from the documents, before there were questions."""


@flow.node("rewrite", start=True, reads=["question"])
def plain(state: State) -> Update:
    """Search for the question as it was asked."""
    return {"query": state["question"].strip().lower()}


def expand(state: State) -> Update:
    """Search for the question, and for what the help centre calls the things in it."""
    query = state["question"].strip().lower()
    spoken = f" {' '.join(spoken_words(query))} "
    added = [synonyms for phrase, synonyms in SYNONYMS.items() if f" {phrase} " in spoken]
    return {"query": " ".join([query, *added])}


@flow.node("retrieve", reads=["query"])
def bm25(state: State) -> Update:
    """Find documents by their words, weighted as by most search engines."""
    return {"found": best(bm25_index().scores(state["query"]))}


def tfidf(state: State) -> Update:
    """Find documents by their words, as vectors."""
    return {"found": best(tfidf_index().scores(state["query"]))}


def chargrams(state: State) -> Update:
    """Find documents by pieces of words: slips of the pen and other forms of a word still match."""
    return {"found": best(chargrams_index().scores(state["query"]))}


def lsa(state: State) -> Update:
    """Find documents by topics: words that often stand together match each other."""
    return {"found": best(lsa_index().scores(state["query"]))}


def hybrid(state: State) -> Update:
    """Find documents by words and by pieces of words, and fuse the two rankings (reciprocal rank fusion)."""
    fused: Scores = {}
    indexes: list[Bm25 | TfIdf] = [bm25_index(), chargrams_index()]
    for index in indexes:
        for rank, document in enumerate(best(index.scores(state["query"])), start=1):
            fused[document["id"]] = fused.get(document["id"], 0.0) + 1 / (60 + rank)
    return {"found": best(fused)}


@flow.node("rerank", reads=["query", "found"])
def none(state: State) -> Update:
    """Keep the documents in the order in which they were found."""
    return {"documents": [document["id"] for document in state["found"]]}


def overlap(state: State) -> Update:
    """Prefer documents that have the query in their titles, and its words next to each other."""
    top = max((document["score"] for document in state["found"]), default=1.0)
    scores = {
        document["id"]: document["score"] / top + closeness(state["query"], DOCUMENTS[document["id"]])
        for document in state["found"]
    }
    return {"documents": [document["id"] for document in best(scores)]}


@flow.node("answer", reads=["query", "documents"])
def first_sentence(state: State) -> Update:
    """Answer with what the best document begins with."""
    return {"answer": next((sentences(DOCUMENTS[id].text)[0] for id in state["documents"]), "")}


def best_sentence(state: State) -> Update:
    """Answer with the sentence of the best few documents that has most of the query."""
    query = state["query"]
    wanted = chargrams_index().vector(query)
    candidates = [
        (coverage(wanted, sentence) / (1 + 0.3 * rank) + (0.1 if gives_number(query, sentence) else 0.0), sentence)
        for rank, id in enumerate(state["documents"][:READ])
        for sentence in sentences(DOCUMENTS[id].text)
    ]
    return {"answer": max(candidates, key=itemgetter(0), default=(0.0, ""))[1]}


def best(scores: Scores) -> list[dict[str, Any]]:
    """Return the documents with the highest scores, highest first; equal ones by their ids."""
    ranked = sorted(scores.items(), key=lambda item: (-round(item[1], 6), item[0]))
    return [{"id": id, "score": round(score, 6)} for id, score in ranked[:FOUND]]


def closeness(query: str, document: Document) -> float:
    """Return how much of a query is in a title, and how many of its words stand side by side in the text, up to 1."""
    asked, titled, written = words(query), set(words(document.title)), words(document.text)
    neighbours = {frozenset(pair) for pair in pairwise(written)}
    pairs = [frozenset(pair) for pair in pairwise(asked)]
    in_title = sum(word in titled for word in asked) / (len(asked) or 1)
    side_by_side = sum(pair in neighbours for pair in pairs) / (len(pairs) or 1)
    return (in_title + side_by_side) / 2


def coverage(wanted: Mapping[str, float], sentence: str) -> float:
    """Return how much of a query's vector a sentence has, up to 1."""
    present = grams_of(sentence)
    return sum(weight * weight for gram, weight in wanted.items() if gram in present)


def gives_number(query: str, sentence: str) -> bool:
    """Return whether a query asks for a number and a sentence has one."""
    return ASKS_NUMBER.search(query) is not None and HAS_NUMBER.search(sentence) is not None


@cache
def grams_of(sentence: str) -> frozenset[str]:
    return frozenset(character_grams(sentence))


@cache
def bm25_index() -> Bm25:
    return Bm25(TEXTS)


@cache
def tfidf_index() -> TfIdf:
    return TfIdf(TEXTS)


@cache
def chargrams_index() -> TfIdf:
    return TfIdf(TEXTS, character_grams)


@cache
def lsa_index() -> Lsa:
    return Lsa(TEXTS)


def make_indexes() -> None:
    """Make now, once in this process, what the first question would otherwise wait for."""
    for make in (bm25_index, tfidf_index, chargrams_index, lsa_index):
        make()


flow.edge("rewrite", "retrieve")
flow.edge("retrieve", "rerank")
flow.edge("rerank", "answer")
flow.edge("answer", wtb.END)
