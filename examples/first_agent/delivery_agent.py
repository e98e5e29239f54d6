"""Which prompt is better? An agent with a tool, a second prompt, eight questions, and a verdict."""

# %% An agent with a tool, in plain LangChain. `scripted_chat` stands in for a model, so that you need no key.
from langchain.agents import create_agent
from langchain_core.tools import tool
from scripted_chat import model  # or: model = init_chat_model("openai:gpt-5-mini")

import wtb
import wtb.langgraph

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday"]
ORDERS = {str(number): DAYS[number % 4] for number in range(1040, 1048)}


@tool
def delivery_day(order: str) -> str:
    """Return the day on which an order arrives."""
    return ORDERS[order]


plain = create_agent(model, [delivery_day], system_prompt="Answer our customers.")

# %% A second version of the agent, with another prompt: a variant of the node `model`.
careful = create_agent(model, [delivery_day], system_prompt="Answer our customers. Look up their order first.")
flow = wtb.langgraph.workflow(plain, name="deliveries")
flow.add_variant("model", "careful", wtb.langgraph.node_of(careful, "model"))

# %% Eight questions with the answers that we expect.
questions = {order: {"messages": [["user", f"When does order {order} arrive?"]]} for order in ORDERS}
cases = [{"id": order, "input": questions[order], "expected": day} for order, day in ORDERS.items()]

# %% Which version is better?
if __name__ == "__main__":
    bench = wtb.Bench()
    evaluators = [wtb.Contains(wtb.langgraph.last_message), wtb.Tokens()]
    result = bench.batch(flow, cases=cases, evaluators=evaluators)
    print(result.compare())
    result.report("report.html")
