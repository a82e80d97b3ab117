"""LangChain's agent, and a graph of LangGraph that is made by hand."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.agents.loops.common import MODEL, TASK, WAY, read_log, tell

model = init_chat_model(f"openai:{MODEL}")
tools = [tool(read_log)]


def graph() -> Any:
    """A model and its tools in turn."""
    bound = model.bind_tools(tools)

    def ask(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    made = StateGraph(MessagesState)
    made.add_node("model", ask)
    made.add_node("tools", ToolNode(tools))
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made.compile()


agent: Any = graph() if WAY == "graph" else create_agent(model, tools)
given: Any = {"messages": [{"role": "user", "content": TASK}]}
messages = agent.invoke(given, {"recursion_limit": 1_000})["messages"]
tell(messages[-1].text, messages)
