"""The published client's packages for frameworks make their models from ours."""

import asyncio

import pytest
from models import TEXT, Models


@pytest.fixture
def make():
    models = Models()
    yield models
    models.remove()


async def by_langgraph(name):
    from blaxel.langgraph import bl_model

    model = await bl_model(name)
    answer = await model.ainvoke("Where is it?")
    streamed = "".join([chunk.text async for chunk in model.astream("Where is it?")])
    assert streamed == TEXT
    return answer.text


async def by_pydantic(name):
    from blaxel.pydantic import bl_model
    from pydantic_ai import Agent

    return (await Agent(await bl_model(name)).run("Where is it?")).output


async def by_openai(name):
    from agents import Agent, Runner, set_tracing_disabled
    from blaxel.openai import bl_model

    set_tracing_disabled(True)
    agent = Agent(name="asks", instructions="Be brief.", model=await bl_model(name))
    return (await Runner.run(agent, "Where is it?")).final_output


# The package's model for Gemini needs an older Pydantic AI.
CASES = [
    *((by_langgraph, kind) for kind in ("openai", "anthropic", "mistral", "deepseek", "cerebras", "groq")),
    *((by_pydantic, kind) for kind in ("openai", "anthropic", "xai", "deepseek", "cerebras")),
    (by_openai, "openai"),
]


@pytest.mark.parametrize("use, kind", CASES, ids=lambda each: getattr(each, "__name__", each))
def test_a_framework_asks_a_model(make, use, kind):
    model = make(kind)
    assert asyncio.run(asyncio.wait_for(use(model.name), 60)) == TEXT
    model.keeps_keys()
    model.counted()
