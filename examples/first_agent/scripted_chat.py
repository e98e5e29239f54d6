"""A stand-in for a language model, so that the example needs no network, no key and no money.

It reads its prompt, the question and the results of tools, as a model does. Unless the prompt tells it to look things
up, it guesses.
"""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedChat(BaseChatModel):
    """Answers when an order arrives: by its tool if the prompt says "look up", otherwise with a guess."""

    guess: str = "Usually on Monday."

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedChat:
        """Return itself: it knows its tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = self._answer(messages)
        read, written = sum(len(str(each.content).split()) for each in messages), 8
        answer.usage_metadata = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage(f"It arrives on {messages[-1].content}.")
        order = re.search(r"\d+", str(messages[-1].content))
        if order is None or "look up" not in str(messages[0].content).lower():
            return AIMessage(self.guess)
        return AIMessage("", tool_calls=[{"name": "delivery_day", "args": {"order": order[0]}, "id": order[0]}])


model = ScriptedChat()
