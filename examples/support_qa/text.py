"""Words, character n-grams and sentences of a text."""

import re


def spoken_words(text: str) -> list[str]:
    """Return all words in lower case and in order; nothing is stemmed or corrected."""
    return re.findall(r"\w+", text.lower())


STOP_WORDS = frozenset(
    spoken_words(
        "a about after all am an and any are as at be been but by can could did do does for from get had has have "
        "how i if in into is it its just me my no not of on or our out please so that the their them then there "
        "they this to too was we were what when where which who why will with would you your"
    )
)


def words(text: str) -> list[str]:
    """Return the words that carry meaning."""
    return [word for word in spoken_words(text) if word not in STOP_WORDS]


def character_grams(text: str, sizes: tuple[int, ...] = (3, 4)) -> list[str]:
    """Return the pieces of each word, its ends marked: "invoce" and "invoices" have most of theirs in common."""
    padded = [f"_{word}_" for word in words(text)]
    return [word[at : at + size] for word in padded for size in sizes for at in range(len(word) - size + 1)]


def sentences(text: str) -> list[str]:
    """Split a text after full stops, question marks and exclamation marks that a space follows."""
    return re.split(r"(?<=[.!?])\s+", text.strip())
