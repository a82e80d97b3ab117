"""Programs with which the investigation tries what it has read: each prints what asyncio really does."""

from __future__ import annotations

DELIVERY = """
import asyncio
async def main():
    async def work():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            print("delivered inside the coroutine:", error.args)
            raise
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    print("cancel() says", task.cancel("enough"), "done yet?", task.done(), "cancelling:", task.cancelling())
    try:
        await task
    except asyncio.CancelledError as error:
        print("the awaiter sees", repr(error), "cancelled():", task.cancelled())
asyncio.run(main())
"""

BEFORE_START = """
import asyncio
async def main():
    async def work():
        print("this line must not be printed")
    task = asyncio.create_task(work())
    task.cancel()
    print(await asyncio.gather(task, return_exceptions=True))
asyncio.run(main())
"""

SWALLOWED = """
import asyncio
async def main():
    async def stubborn():
        for n in range(3):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                print("swallowed", n, "cancelling:", asyncio.current_task().cancelling())
        return "finished all the same"
    task = asyncio.create_task(stubborn())
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    print(await task, "cancelled():", task.cancelled())
asyncio.run(main())
"""

UNCANCEL = """
import asyncio
async def main():
    async def work():
        me = asyncio.current_task()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("before uncancel:", me.cancelling())
            print("after uncancel:", me.uncancel())
        await asyncio.sleep(0)
        return "went on"
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    print(await task)
asyncio.run(main())
"""

TIMEOUT = """
import asyncio
async def main():
    try:
        async with asyncio.timeout(0.01) as limit:
            await asyncio.sleep(60)
    except TimeoutError as error:
        print("timeout:", repr(error), "cause:", repr(error.__cause__), "expired:", limit.expired())
    print("cancelling of the task afterwards:", asyncio.current_task().cancelling())
asyncio.run(main())
"""

GROUP = """
import asyncio
async def main():
    async def fails():
        await asyncio.sleep(0.01)
        raise ValueError("one child fails")
    async def waits(name):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("sibling", name, "is cancelled by the group")
            raise
    try:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(waits(name))
            group.create_task(fails())
    except* ValueError as many:
        print("the group raises", many.exceptions)
asyncio.run(main())
"""

SHIELD = """
import asyncio
async def main():
    inner = asyncio.create_task(asyncio.sleep(0.02, "inner result"))
    outer = asyncio.ensure_future(asyncio.shield(inner))
    await asyncio.sleep(0)
    outer.cancel()
    try:
        await outer
    except asyncio.CancelledError:
        print("outer cancelled:", outer.cancelled(), "inner cancelled:", inner.cancelled())
    print(await inner)
asyncio.run(main())
"""

WAIT_FOR = """
import asyncio
async def main():
    async def slow_to_die():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            print("clean-up is awaited before wait_for raises")
    try:
        await asyncio.wait_for(slow_to_die(), 0.01)
    except TimeoutError as error:
        print("wait_for:", repr(error))
asyncio.run(main())
"""

EXECUTOR = """
import asyncio, threading
async def main():
    loop, started, release = asyncio.get_running_loop(), threading.Event(), threading.Event()
    def work():
        started.set()
        release.wait(5)
        print("the thread ran to its end: a cancelled future does not stop it")
    future = loop.run_in_executor(None, work)
    await asyncio.to_thread(started.wait)
    print("cancel() says", future.cancel())
    release.set()
asyncio.run(main())
"""

LOCK = """
import asyncio
async def main():
    lock = asyncio.Lock()
    await lock.acquire()
    waiters = [asyncio.create_task(lock.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    lock.release()
    done = await asyncio.wait_for(asyncio.gather(*waiters[:2], return_exceptions=True), 1)
    print("the cancelled waiter passes the wake-up on:", done)
    waiters[2].cancel()
asyncio.run(main())
"""

SOURCES = """
import asyncio, inspect
for what in (asyncio.tasks._PyTask.cancel, asyncio.tasks._PyTask.uncancel, asyncio.tasks._PyTask.cancelling):
    print(inspect.getsource(what))
"""
