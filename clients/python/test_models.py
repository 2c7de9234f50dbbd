"""The packages of OpenAI, Anthropic and Google, and LiteLLM's, ask models of their own provider and of others."""

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import anthropic
import httpx
import litellm
import openai
import pytest
from google import genai
from google.genai import errors, types
from models import KEY, SAMPLED, SCHEMA, SECRET, STANDIN, TEXT, Models
from pydantic import BaseModel
from support import until

KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "cohere", "mistral"])
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]
TOOL = {"name": "find", "description": "Finds a city.", "parameters": SCHEMA}


class Place(BaseModel):
    city: str
    count: int


@pytest.fixture
def make():
    models = Models()
    yield models
    models.remove()


def by_openai(model):
    return openai.OpenAI(base_url=f"{model.url}/v1", api_key=KEY, max_retries=0)


def by_anthropic(model):
    return anthropic.Anthropic(base_url=model.url, api_key=KEY, max_retries=0)


def by_google(model):
    """Returns a client that the caller has to keep: it closes its connections when it is dropped."""
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=model.url))


@KINDS
def test_openai(make, kind):
    model = make(kind)
    client = by_openai(model)
    answer = client.chat.completions.create(model=model.name, messages=MESSAGES)
    assert answer.choices[0].message.content == TEXT
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 8)
    with client.chat.completions.stream(model=model.name, messages=MESSAGES, stream_options={"include_usage": True}) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta" and event.delta]
        assert pieces == [TEXT.split(" ")[0]] + [" " + word for word in TEXT.split(" ")[1:]]
        assert stream.get_final_completion().usage.total_tokens == 13
    tools = [{"type": "function", "function": TOOL}]
    called = client.chat.completions.create(model=model.name, messages=MESSAGES, tools=tools).choices[0]
    assert called.finish_reason == "tool_calls"
    assert json.loads(called.message.tool_calls[0].function.arguments) == SAMPLED
    result = {"role": "tool", "tool_call_id": called.message.tool_calls[0].id, "content": "It is in France."}
    history = [*MESSAGES, called.message.model_dump(exclude_none=True), result]
    end = client.chat.completions.create(model=model.name, messages=history, tools=tools)
    assert end.choices[0].message.content == TEXT
    parsed = client.chat.completions.parse(model=model.name, messages=MESSAGES, response_format=Place)
    assert parsed.choices[0].message.parsed == Place(city="Paris", count=7)
    assert client.responses.create(model=model.name, input="Where is it?").output_text == TEXT
    with client.responses.stream(model=model.name, input="Where is it?") as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        assert stream.get_final_response().output_text == TEXT
    model.keeps_keys()
    model.counted()


@KINDS
def test_anthropic(make, kind):
    model = make(kind)
    client = by_anthropic(model)
    asked = {"model": model.name, "max_tokens": 100, "system": "Be brief.", "messages": MESSAGES[1:]}
    answer = client.messages.create(**asked)
    assert answer.content[0].text == TEXT
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 8)
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == TEXT
        assert stream.get_final_message().usage.output_tokens == 8
    tools = [{"name": "find", "description": "Finds a city.", "input_schema": SCHEMA}]
    called = client.messages.create(**asked, tools=tools)
    assert called.stop_reason == "tool_use"
    call = next(part for part in called.content if part.type == "tool_use")
    assert call.input == SAMPLED
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It is in France."}
    history = [*MESSAGES[1:], {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**asked | {"messages": history}, tools=tools).content[0].text == TEXT
    model.keeps_keys()
    model.counted()


@KINDS
def test_google(make, kind):
    model = make(kind)
    client = by_google(model)
    models = client.models
    answer = models.generate_content(model=model.asked, contents="Where is it?")
    assert answer.text == TEXT
    assert answer.usage_metadata.total_token_count == 11
    chunks = list(models.generate_content_stream(model=model.asked, contents="Where is it?"))
    assert "".join(chunk.text or "" for chunk in chunks) == TEXT
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="find", description="Finds a city.", parameters_json_schema=SCHEMA)])
    called = models.generate_content(model=model.asked, contents="Where?", config=types.GenerateContentConfig(tools=[tool]))
    assert [(call.name, call.args) for call in called.function_calls] == [("find", SAMPLED)]
    config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=SCHEMA)
    assert json.loads(models.generate_content(model=model.asked, contents="Where?", config=config).text) == SAMPLED
    model.keeps_keys()
    model.counted()


@KINDS
def test_litellm(make, kind):
    model = make(kind)
    asked = {"api_base": f"{model.url}/v1", "api_key": KEY, "messages": MESSAGES, "max_retries": 0}
    answer = litellm.completion(model=f"openai/{model.name}", **asked)
    assert answer.choices[0].message.content == TEXT
    stream = litellm.completion(model=f"openai/{model.name}", stream=True, **asked)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == TEXT
    own = litellm.completion(model=f"anthropic/{model.name}", **asked | {"api_base": model.url})
    assert own.choices[0].message.content == TEXT
    model.keeps_keys()
    model.counted()


@KINDS
def test_failures_are_told_in_the_words_of_each_client(make, kind):
    busy, broken = make(kind, "status=429,retry-after=3", routing={"retries": 0}), make(kind, "status=500", routing={"retries": 0})
    ask = {"max_tokens": 9, "messages": MESSAGES[1:]}
    with pytest.raises(openai.RateLimitError) as raised:
        by_openai(busy).chat.completions.create(model="any", messages=MESSAGES)
    assert raised.value.response.headers["retry-after"] == "3"
    with pytest.raises(openai.InternalServerError):
        by_openai(broken).chat.completions.create(model="any", messages=MESSAGES)
    with pytest.raises(anthropic.RateLimitError):
        by_anthropic(busy).messages.create(model="any", **ask)
    with pytest.raises(anthropic.InternalServerError):
        by_anthropic(broken).messages.create(model="any", **ask)
    client = by_google(busy)
    with pytest.raises(errors.ClientError) as raised:
        client.models.generate_content(model="any", contents="hi")
    assert raised.value.code == 429
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(model="openai/any", api_base=f"{busy.url}/v1", api_key=KEY, messages=MESSAGES, max_retries=0)


def test_a_limit_is_the_rate_limit_error_of_each_client(make):
    model = make("openai", policies=[make.policy(granularity="day", requests=1)])
    by_openai(model).chat.completions.create(model="any", messages=MESSAGES)
    with pytest.raises(openai.RateLimitError) as raised:
        by_openai(model).chat.completions.create(model="any", messages=MESSAGES)
    assert 0 < int(raised.value.response.headers["retry-after"]) <= 86400
    with pytest.raises(anthropic.RateLimitError):
        by_anthropic(model).messages.create(model="any", max_tokens=9, messages=MESSAGES[1:])
    client = by_google(model)
    with pytest.raises(errors.ClientError) as google:
        client.models.generate_content(model="any", contents="hi")
    assert google.value.code == 429
    assert model.served()["calls"] == 1


def test_one_limit_holds_over_many_callers(make):
    model = make("anthropic", "first=30", policies=[make.policy(granularity="hour", requests=5)])
    answers, client = [], by_openai(model)

    def ask():
        try:
            client.chat.completions.create(model="any", messages=MESSAGES)
            answers.append(200)
        except openai.RateLimitError:
            answers.append(429)

    threads = [threading.Thread(target=ask) for _ in range(25)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(answers) == [200] * 5 + [429] * 20
    assert model.served()["calls"] == 5


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])
def test_a_caller_who_hangs_up_pays_for_what_was_sent(make, kind):
    model = make(kind, "out=2000,gap=10")
    stream = by_openai(model).chat.completions.create(model="any", messages=MESSAGES, stream=True)
    for count, _ in enumerate(stream):
        if count == 10:
            break
    stream.close()
    until("the provider sees it", lambda: model.served()["broken"] == 1)
    used = until("it is counted", lambda: (used := model.usage())["calls"] == 1 and used)
    assert 8 <= used["output"] <= model.served()["output"] + 5 < 500, used


def test_embeddings(make):
    for kind in ("openai", "gemini", "cohere"):
        model = make(kind)
        answer = by_openai(model).embeddings.create(model="any", input=["one two", "three"])
        assert [len(each.embedding) for each in answer.data] == [8, 8]


def test_a_chain_goes_on_where_one_fails(make):
    bad, good = make("openai", "status=500", routing={"retries": 0}), make("anthropic")
    chain = make.virtual(targets=[{"model": bad.name}], fallbacks=[{"model": good.name}], retries=0)
    answer = by_openai(chain).chat.completions.with_raw_response.create(model="any", messages=MESSAGES)
    assert answer.headers["x-holm-model"] == good.name
    assert answer.parse().choices[0].message.content == TEXT


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """Starts LiteLLM's own proxy in front of the stand-in."""
    program = os.environ.get("HOLM_LITELLM")
    if not program:
        pytest.skip("HOLM_LITELLM names no proxy")
    folder = tmp_path_factory.mktemp("litellm")
    entry = {"model_name": "*", "litellm_params": {"model": "openai/*", "api_base": f"{STANDIN}/v1", "api_key": "sk-x"}}
    settings = {"model_list": [entry], "general_settings": {"master_key": SECRET}}
    (folder / "config.yaml").write_text(json.dumps(settings))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [program, "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"

        def listens():
            assert process.poll() is None, Path(folder / "log").read_text()
            try:
                return httpx.get(f"{address}/health/liveliness").status_code == 200
            except httpx.TransportError:
                return False

        until("LiteLLM listens", listens, 120)
        yield address
    finally:
        process.terminate()
        process.wait()


def test_litellms_proxy_is_a_provider(make, proxy):
    model = make("openai", endpoint=f"{proxy}/v1")
    client = by_openai(model)
    assert client.chat.completions.create(model="any", messages=MESSAGES).choices[0].message.content == TEXT
    stream = client.chat.completions.create(model="any", messages=MESSAGES, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == TEXT
    assert by_anthropic(model).messages.create(model="any", max_tokens=99, messages=MESSAGES[1:]).content[0].text == TEXT
    until("both are counted", lambda: model.usage()["output"] == 24)
