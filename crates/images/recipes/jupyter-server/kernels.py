"""Kernels: one process for each context, which keeps the state of the code that ran in it."""

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

# Which kernel runs which language, if it is installed.
KERNELS = {"python": "python3", "javascript": "deno", "typescript": "deno"}
CONTEXTS_MAX = 64
START_S_MAX = 60
# After an interrupt, before the kernel is replaced.
INTERRUPT_S_MAX = 5
# How often a silent kernel, and whoever waits for it, are looked after.
LOOK_S = 0.5
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
        await self.manager.start_kernel(cwd=self.cwd)
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
            if env_vars and self.language == "python":
                await self._silently(f"__holm_env = dict(__import__('os').environ)\n__import__('os').environ.update({env_vars!r})")
            async for event in self._run(code, seconds_max, is_wanted):
                yield event
            if env_vars and self.language == "python":
                # A kernel that died has none of this any more.
                await self._silently(
                    "if '__holm_env' in globals():\n"
                    "    __import__('os').environ.clear()\n"
                    "    __import__('os').environ.update(globals().pop('__holm_env'))"
                )

    async def _run(self, code, seconds_max, is_wanted):
        request = self.client.execute(code, allow_stdin=False)
        deadline = time.monotonic() + seconds_max
        interrupted = None
        count = None
        while True:
            message = await self._next(request)
            if message is None:
                if not await self.manager.is_alive():
                    await self.restart()
                    yield error("KernelDied", "The kernel died. A new one has been started, without state.")
                    break
                if interrupted is None and not (is_wanted() and time.monotonic() < deadline):
                    interrupted = time.monotonic()
                    await self.manager.interrupt_kernel()
                elif interrupted is not None and time.monotonic() > interrupted + INTERRUPT_S_MAX:
                    await self.restart()
                    yield error("KernelDied", "The code could not be interrupted. A new kernel has been started, without state.")
                    break
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_input":
                count = content["execution_count"]
            elif kind == "stream":
                yield {"type": content["name"], "text": content["text"], "timestamp": time.time()}
            elif kind in ("execute_result", "display_data"):
                yield result(content["data"], kind == "execute_result")
            elif kind == "error" and interrupted is None:
                yield error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
            elif kind == "error":
                yield error("TimeoutError", f"The code ran longer than {seconds_max:g} s and was interrupted.")
            elif kind == "status" and content["execution_state"] == "idle":
                break
            if interrupted is None and time.monotonic() > deadline:
                # It says so much that it is never silent.
                interrupted = time.monotonic()
                await self.manager.interrupt_kernel()
        if count is not None:
            yield {"type": "number_of_executions", "execution_count": count}

    async def _next(self, request):
        """The next message about a request, or None after a while of silence."""
        try:
            while True:
                message = await self.client.get_iopub_msg(timeout=LOOK_S)
                if message["parent_header"].get("msg_id") == request:
                    return message
        except Exception as silence:
            if type(silence).__name__ != "Empty":
                raise
            return None

    async def _silently(self, code):
        request = self.client.execute(code, silent=True, store_history=False)
        while message := await self._next(request):
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return


def error(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback or f"{name}: {value}"}


def result(data, is_main):
    event = {"type": "result", "is_main_result": is_main}
    event.update({FORMS[form]: value for form, value in data.items() if form in FORMS})
    extra = {form: value for form, value in data.items() if form not in FORMS}
    return {**event, "extra": extra} if extra else event


class Contexts:
    """All contexts, and for each language the one that is used when none is named."""

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
        async with self.starting:
            if language not in self.defaults:
                self.defaults[language] = await self.create(language)
            return self.defaults[language]

    async def delete(self, id):
        context = self.all.pop(id)
        self.defaults = {language: other for language, other in self.defaults.items() if other is not context}
        await context.stop()

    async def stop(self):
        for id in list(self.all):
            await self.delete(id)
