"""Prices of models, from the package genai-prices if it is installed; it includes the prices and uses no network."""

from __future__ import annotations


def price_usd(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """Return the cost of a call; None if the package is absent or does not know the model.

    A model may be named with its provider, as `openai/gpt-4o` or `openai:gpt-4o`.
    """
    try:
        from genai_prices import Usage, calc_price  # takes a quarter of a second to load
    except ImportError:
        return None
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    provider, _, name = model.replace(":", "/", 1).partition("/")
    for model_ref, provider_id in ((model, None), (name, provider)):
        try:
            return float(calc_price(usage, model_ref, provider_id=provider_id).total_price)
        except (LookupError, ValueError):
            continue
    return None
