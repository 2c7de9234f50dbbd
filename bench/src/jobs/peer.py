"""pgqueuer on a PostgreSQL: peer.py DSN TASKS RUNS_A_PROGRAM. Prints tasks per second, from the first task stored to the last done."""

import asyncio
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

# The fastest of 10, 50, 100 and 200.
BATCH = 200
# As many as there are cores for programs; without programs there is nothing to limit.
PROGRAMS = 2


async def main(dsn: str, tasks: int, runs_a_program: bool) -> None:
    pool = await asyncpg.create_pool(dsn, min_size=4, max_size=4)
    queue = PgQueuer.from_asyncpg_pool(pool)
    queries = Queries(queue.connection)
    await queries.install()
    done = 0
    free = asyncio.Semaphore(PROGRAMS)

    @queue.entrypoint("task")
    async def task(_job) -> None:
        nonlocal done
        if runs_a_program:
            async with free:
                process = await asyncio.create_subprocess_exec("/bin/true")
                if await process.wait() != 0:
                    raise RuntimeError("/bin/true failed")
        done += 1

    begun = time.perf_counter()
    await queries.enqueue(["task"] * tasks, [b"{}"] * tasks, [0] * tasks)
    await queue.qm.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    seconds = time.perf_counter() - begun
    await queries.uninstall()
    await pool.close()
    if done != tasks:
        raise RuntimeError(f"{done} of {tasks} tasks were done")
    print(tasks / seconds)


uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "program"))
