"""The shop: what things cost, how that is looked up, and what is put aside for customers."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from langchain_core.tools import tool

import wtb.langgraph

PRICES = {
    "basket": 15.0,
    "bowl": 6.5,
    "candle": 4.0,
    "cup": 5.5,
    "jug": 12.0,
    "kettle": 31.0,
    "lamp": 42.0,
    "mug": 8.0,
    "plate": 7.0,
    "spoon": 2.5,
    "teapot": 24.5,
    "tray": 18.0,
}
ASIDE = Path("put_aside.txt")
"""The world outside: one line for whatever is put aside."""


@tool("price")
def exact(product: str) -> str:
    """Return what a product costs."""
    return str(PRICES.get(product, f"there is no {product}"))


@tool("price")
def tolerant(product: str) -> str:
    """Return what a product costs; a slip of the pen is forgiven."""
    names = get_close_matches(product, PRICES, n=1, cutoff=0.6)
    return str(PRICES[names[0]]) if names else f"there is no {product}"


@tool
def put_aside(product: str, count: int) -> str:
    """Put something aside for the customer."""
    with ASIDE.open("a") as file:
        file.write(f"{count} × {product}\n")
    return f"{count} × {product} put aside"


def put_back(call: Any) -> None:
    """Undo one `put_aside`: what a rollback calls."""
    lines = ASIDE.read_text().splitlines()
    lines.remove("{count} × {product}".format_map(call.arguments))
    ASIDE.write_text("".join(f"{line}\n" for line in lines))


# Looking something up changes nothing, so that its result may be shared; putting aside can be taken back.
exact = wtb.langgraph.recorded(exact, effects="none")
tolerant = wtb.langgraph.recorded(tolerant, effects="none")
put_aside = wtb.reversible(put_aside, reverse=put_back)
