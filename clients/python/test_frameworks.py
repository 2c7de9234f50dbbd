"""Each framework's package makes its tools from a deployed MCP server, and calls one. Their models are not tested here."""

import asyncio
import json

import pytest
from support import call, deployed, fresh


@pytest.fixture(scope="module")
def server(served):
    name = fresh("function")
    call("functions.create_function", body={"metadata": {"name": name}, "spec": {"runtime": {"image": served, "memory": 256}}})
    deployed("function", name)
    yield name
    call("functions.delete_function", function_name=name)


async def langgraph(name):
    from blaxel.langgraph import bl_tools

    tools = {tool.name: tool for tool in await bl_tools([name], timeout_enabled=False)}
    assert tools["add"].description == "Adds two numbers."
    content, _ = await tools["add"].ainvoke({"a": 2, "b": 3})
    return content


async def openai(name):
    from agents.tool_context import ToolContext
    from blaxel.openai import bl_tools

    tools = {tool.name: tool for tool in await bl_tools([name], timeout_enabled=False)}
    arguments = json.dumps({"a": 2, "b": 3})
    context = ToolContext(context=None, tool_name="add", tool_call_id="1", tool_arguments=arguments)
    return (await tools["add"].on_invoke_tool(context, arguments)).content[0].text


async def pydantic(name):
    from blaxel.pydantic import bl_tools
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    # This model calls the tools that it is told to, with arguments that match their schema.
    result = await Agent(TestModel(call_tools=["add"]), tools=await bl_tools([name], timeout_enabled=False)).run("add")
    returned = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    return returned[0].content.content[0].text


@pytest.mark.parametrize("use, sum", [(langgraph, "5"), (openai, "5"), (pydantic, "0")], ids=lambda use: getattr(use, "__name__", None))
def test_a_framework_makes_its_tools_of_an_mcp_server(server, use, sum):
    from blaxel.core.tools import toolPersistances

    # Each event loop has connections of its own.
    toolPersistances.clear()
    assert asyncio.run(asyncio.wait_for(use(server), 60)) == sum
