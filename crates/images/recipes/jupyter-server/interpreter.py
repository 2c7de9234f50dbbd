"""A code interpreter on port 8888.

    POST   /contexts         {language, cwd}                          a kernel of one's own
    GET    /contexts[/{id}]
    DELETE /contexts/{id}
    POST   /execute          {code, context_id, language, env_vars, timeout}

The answer to /execute is a stream of lines, each a JSON object with a `type`: `stdout`, `stderr`, `result`, `error`, and at
the end `number_of_executions`. Without `context_id` the code runs in the default context of its language.
"""

import asyncio
import contextlib
import json
import os

from aiohttp import web

from kernels import Contexts, Refused, languages

PORT = 8888
BODY_BYTES_MAX = 64 << 20
EXECUTION_S_MAX = 24 * 3600
CONTEXTS = "contexts"


def refusal(status, message):
    return web.json_response({"error": message}, status=status)


@web.middleware
async def refusals(request, handler):
    try:
        return await handler(request)
    except Refused as problem:
        return refusal(400, str(problem))


async def body(request, **types):
    """The members of a JSON object, each of its type or None."""
    try:
        found = json.loads(await request.text() or "{}")
    except ValueError as problem:
        raise Refused(f"the body is not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise Refused("the body is not a JSON object")
    for name, kind in types.items():
        if found.get(name) is not None and not isinstance(found[name], kind):
            raise Refused(f"`{name}` is of a wrong type")
    return [found.get(name) for name in types]


def context_of(request):
    context = request.app[CONTEXTS].all.get(request.match_info["id"])
    if context is None:
        raise web.HTTPNotFound(text='{"error": "there is no such context"}', content_type="application/json")
    return context


async def create(request):
    language, cwd = await body(request, language=str, cwd=str)
    context = await request.app[CONTEXTS].create(language, cwd)
    return web.json_response(context.view())


async def list_all(request):
    return web.json_response([context.view() for context in request.app[CONTEXTS].all.values()])


async def read(request):
    return web.json_response(context_of(request).view())


async def delete(request):
    context = context_of(request)
    await request.app[CONTEXTS].delete(context.id)
    return web.json_response(context.view())


async def execute(request):
    code, id, language, env_vars, timeout = await body(
        request, code=str, context_id=str, language=str, env_vars=dict, timeout=(int, float)
    )
    if code is None:
        raise Refused("`code` is missing")
    if id and language:
        raise Refused("give `context_id` or `language`, not both: a context has a language")
    contexts = request.app[CONTEXTS]
    context = contexts.all.get(id) if id else await contexts.default(language)
    if context is None:
        return refusal(404, "there is no such context")
    env_vars = {str(name): str(value) for name, value in (env_vars or {}).items()}
    if any(not name or "=" in name or "\0" in name + value for name, value in env_vars.items()):
        raise Refused("`env_vars` has what cannot be an environment variable")
    seconds_max = min(timeout or EXECUTION_S_MAX, EXECUTION_S_MAX)

    answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await answer.prepare(request)
    is_wanted = lambda: request.transport is not None and not request.transport.is_closing()
    async for event in context.execute(code, env_vars, seconds_max, is_wanted):
        # The rest is heard to its end also when nobody reads it: the context is free only then.
        if is_wanted():
            with contextlib.suppress(ConnectionError):
                # Only ASCII: some clients take other characters than a newline for the end of a line.
                await answer.write(json.dumps(event).encode() + b"\n")
    return answer


async def health(request):
    return web.json_response({"status": "ok", "languages": languages()})


async def life(app):
    contexts = app[CONTEXTS] = Contexts(os.getcwd())
    # The first who asks shall not wait for a kernel.
    warm = asyncio.create_task(contexts.default())
    yield
    await asyncio.wait([warm])
    await contexts.stop()


def main():
    app = web.Application(middlewares=[refusals], client_max_size=BODY_BYTES_MAX)
    app.cleanup_ctx.append(life)
    app.add_routes(
        [
            web.get("/health", health),
            web.post("/contexts", create),
            web.get("/contexts", list_all),
            web.get("/contexts/{id}", read),
            web.delete("/contexts/{id}", delete),
            web.post("/execute", execute),
        ]
    )
    web.run_app(app, host="0.0.0.0", port=PORT, access_log=None, print=None)


if __name__ == "__main__":
    main()
