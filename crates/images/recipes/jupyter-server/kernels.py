"""Kernels: one process for each context, which keeps the state of the code that ran in it."""

import asyncio
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from queue import Empty

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

# Which kernel runs which language, if it is installed.
KERNELS = {"python": "python3", "javascript": "deno", "typescript": "deno"}
CONTEXTS_MAX = 64
START_S_MAX = 60
# After an interrupt, before the kernel is replaced.
INTERRUPT_S_MAX = 5
# Deno's kernel says that it is done before it has said everything.
LATE_S = 0.1
# How often a silent kernel, and whoever waits for it, are looked after.
LOOK_S = 0.5
SILENCE = "silence"
# What has a name of its own in a result; all other forms are under `extra`.
FORMS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "application/json": "json",
    "application/javascript": "javascript",
}


# Sets environment variables for one execution, and what brings back those of before. A kernel that died has none.
PYTHON_ENTER = "__holm_env = dict(__import__('os').environ)\n__import__('os').environ.update({env})"
PYTHON_LEAVE = """
if '__holm_env' in globals():
    __import__('os').environ.clear()
    __import__('os').environ.update(globals().pop('__holm_env'))
"""
DENO_ENTER = """
globalThis.__holm_env = Deno.env.toObject();
for (const [name, value] of Object.entries({env})) Deno.env.set(name, value);
"""
DENO_LEAVE = """
if (globalThis.__holm_env) {
    for (const name of Object.keys(Deno.env.toObject())) Deno.env.delete(name);
    for (const [name, value] of Object.entries(globalThis.__holm_env)) Deno.env.set(name, value);
    delete globalThis.__holm_env;
}
"""
ENVIRONMENT = {"python3": (PYTHON_ENTER, PYTHON_LEAVE), "deno": (DENO_ENTER, DENO_LEAVE)}


class Refused(Exception):
    """What the caller asked for cannot be had."""


def languages():
    installed = KernelSpecManager().find_kernel_specs()
    return sorted(language for language, kernel in KERNELS.items() if kernel in installed)


@dataclass
class Context:
    language: str
    cwd: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self):
        self.manager = AsyncKernelManager(kernel_name=KERNELS[self.language])
        self.client = None
        # Executions in one context come one after the other.
        self.turn = asyncio.Lock()

    def view(self):
        return {"id": self.id, "context_id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        # Results of Deno are texts with colours otherwise.
        plain = {"NO_COLOR": "1"} if KERNELS[self.language] == "deno" else {}
        await self.manager.start_kernel(cwd=self.cwd, env={**os.environ, **plain})
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=START_S_MAX)

    async def restart(self):
        await self.manager.restart_kernel(now=True)
        await self.client.wait_for_ready(timeout=START_S_MAX)

    async def stop(self):
        if self.client is not None:
            self.client.stop_channels()
        if self.manager.has_kernel:
            await self.manager.shutdown_kernel(now=True)

    async def execute(self, code, env_vars, seconds_max, is_wanted):
        """Runs code and yields what comes of it, until it ends, takes too long, or nobody wants it any more."""
        async with self.turn:
            if not await self.manager.is_alive():
                await self.restart()
                yield {"type": "stderr", "text": "The kernel had died. A new one has been started, without state.\n"}
            enter, leave = ENVIRONMENT[KERNELS[self.language]]
            if env_vars:
                # JSON of texts means the same in all these languages, as long as nothing is escaped by its code.
                await self._silently(enter.replace("{env}", json.dumps(env_vars, ensure_ascii=False)))
            async for event in self._run(code, seconds_max, is_wanted):
                yield event
            if env_vars:
                await self._silently(leave)

    async def _run(self, code, seconds_max, is_wanted):
        request = self.client.execute(code, allow_stdin=False)
        deadline, interrupted, count = time.monotonic() + seconds_max, None, None
        async for kind, content in self._messages(request):
            if kind == "execute_input":
                count = content["execution_count"]
            elif kind == "error" and interrupted is not None:
                yield error("TimeoutError", f"The code ran longer than {seconds_max:g} s and was interrupted.")
            elif event := event_of(kind, content):
                yield event
            if interrupted is None and (time.monotonic() > deadline or not is_wanted()):
                interrupted = time.monotonic()
                await self.manager.interrupt_kernel()
            if trouble := await self._trouble(kind, interrupted):
                await self.restart()
                yield error("KernelDied", f"{trouble} A new kernel has been started, without state.")
                break
        if count is not None:
            yield {"type": "number_of_executions", "execution_count": count}

    async def _trouble(self, kind, interrupted):
        if kind == SILENCE and not await self.manager.is_alive():
            return "The kernel died." if interrupted is None else "The code ran too long, and the interrupt ended the kernel."
        if interrupted is not None and time.monotonic() > interrupted + INTERRUPT_S_MAX:
            return "The code could not be interrupted."
        return None

    async def _messages(self, request):
        """Kind and content of what the kernel says of a request until that is done, and SILENCE now and then."""
        wait_s, is_done = LOOK_S, False
        while True:
            try:
                message = await self.client.get_iopub_msg(timeout=wait_s)
            except Empty:
                if is_done:
                    return
                yield SILENCE, {}
                continue
            if message["parent_header"].get("msg_id") != request:
                # Of a thread that has outlived its execution.
                yield SILENCE, {}
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                if KERNELS[self.language] != "deno":
                    return
                wait_s, is_done = LATE_S, True
            else:
                yield message["msg_type"], message["content"]

    async def _silently(self, code):
        request = self.client.execute(code, silent=True, store_history=False)
        async for kind, _ in self._messages(request):
            if await self._trouble(kind, None):
                return


def event_of(kind, content):
    """What the caller is told, if anything."""
    if kind == "stream":
        return {"type": content["name"], "text": content["text"], "timestamp": time.time()}
    if kind in ("execute_result", "display_data"):
        return result(content["data"], kind == "execute_result")
    if kind == "error":
        return error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
    return None


def error(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback or f"{name}: {value}"}


def result(data, is_main):
    event = {"type": "result", "is_main_result": is_main}
    event.update({FORMS[form]: value for form, value in data.items() if form in FORMS})
    extra = {form: value for form, value in data.items() if form not in FORMS}
    return {**event, "extra": extra} if extra else event


class Contexts:
    """All contexts, and for each kernel the one that is used when none is named."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.all = {}
        self.defaults = {}
        self.starting = asyncio.Lock()

    async def create(self, language=None, cwd=None):
        language = (language or "python").lower()
        if language not in languages():
            raise Refused(f"there is no kernel for `{language}`; there are: {', '.join(languages())}")
        if len(self.all) >= CONTEXTS_MAX:
            raise Refused(f"there are {CONTEXTS_MAX} contexts already; delete one first")
        context = Context(language, cwd or self.cwd)
        try:
            await context.start()
        except (OSError, RuntimeError) as problem:
            await context.stop()
            raise Refused(f"the kernel for `{language}` does not start in `{context.cwd}`: {problem}") from problem
        self.all[context.id] = context
        return context

    async def default(self, language=None):
        language = (language or "python").lower()
        kernel = KERNELS.get(language)
        async with self.starting:
            if kernel not in self.defaults:
                self.defaults[kernel] = await self.create(language)
            return self.defaults[kernel]

    async def delete(self, id):
        context = self.all.pop(id)
        self.defaults = {kernel: other for kernel, other in self.defaults.items() if other is not context}
        await context.stop()

    async def stop(self):
        for id in list(self.all):
            await self.delete(id)
