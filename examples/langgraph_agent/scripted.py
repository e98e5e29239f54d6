"""ScriptedModel: stands in for a language model, so that the example needs no network, no key and no money.

It reads its prompt, the question and the results of tools, as a model does, but by a few rules. Like many a model it
does no more than it is told: unless the prompt says so, it looks up the first product only.
"""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

_ITEM = re.compile(r"\b(\d+|an?) ([a-z]+)")


class ScriptedModel(BaseChatModel):
    """Looks up prices, puts aside what it is asked to, and adds up."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedModel:
        """Return itself: it knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = _answer(messages)
        read, written = sum(len(str(each.content).split()) for each in messages), 20
        answer.usage_metadata = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
        answer.response_metadata = {"model_name": "scripted"}
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _answer(messages: list[BaseMessage]) -> AIMessage:
    prompt, question = str(messages[0].content), next(m for m in messages if isinstance(m, HumanMessage))
    found = [(name.removesuffix("s"), int(count) if count.isdigit() else 1) for count, name in _items(question)]
    items = dict(found if "every" in prompt else found[:1])
    told = {message.tool_call_id: str(message.content) for message in messages if isinstance(message, ToolMessage)}
    if not told:
        return _calls("price", [{"product": name} for name in items])
    prices = {name: told[f"price {name}"] for name in items}
    known = {name: float(price) for name, price in prices.items() if not price.startswith("there is no")}
    if "put aside" in str(question.content) and known and not any(id.startswith("put_aside") for id in told):
        return _calls("put_aside", [{"product": name, "count": items[name]} for name in known])
    if len(known) < len(items):
        return AIMessage(f"Sorry, {', '.join(prices[name] for name in items if name not in known)}. Total: unknown")
    return AIMessage(f"Here you are. Total: {sum(items[name] * price for name, price in known.items())}")


def _items(question: BaseMessage) -> list[tuple[str, str]]:
    return _ITEM.findall(str(question.content))


def _calls(tool: str, arguments: list[dict[str, Any]]) -> AIMessage:
    calls = [{"name": tool, "args": each, "id": f"{tool} {each['product']}"} for each in arguments]
    return AIMessage("", tool_calls=calls)
