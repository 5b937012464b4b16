"""A hedged attempt: when a replica is slower than most, a second one is asked too, and the first that answers is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.pool.backend import Backend
from gateway.pool.hedging import Hedging, size_of
from gateway.pool.replicas import NoneLive
from gateway.pool.transport import Transport
from gateway.serving.attempt import attempt
from gateway.serving.begun import Begun
from gateway.serving.call import Receipt, UpstreamCall
from gateway.serving.errand import Errand
from gateway.serving.patience import Patience
from gateway.serving.retry import Failure
from gateway.serving.state import RealModel

Attempt = asyncio.Task[Begun | Failure]


async def hedged(
    transport: Transport,
    patience: Patience,
    backend: Backend,
    model: RealModel,
    hedging: Hedging,
    errand: Errand,
    receipt: Receipt,
    tried: set[str],
) -> Begun | Failure:
    """As `attempt`, but on a second replica too once the first has taken too long; that one is added to `tried`.

    The answer that comes first is taken; a failure waits for what the other one says. Whichever is not taken is cancelled, and its socket
    closed, before this returns.
    """

    async def on(replica: Backend) -> Begun | Failure:
        return await attempt(transport, Patience(patience.deadline), replica, model, errand, receipt)

    fields = errand.fields
    size = size_of(len(errand.prompt), fields.max_completion_tokens or fields.max_tokens, streams=bool(fields.stream))
    delay_s = hedging.begin(size)
    calls = len(receipt.calls)
    create = asyncio.get_running_loop().create_task
    tasks = [create(on(backend), name=f"attempt on {backend.name}")]
    taken: Attempt | None = None
    try:
        if delay_s is not None:
            await asyncio.wait(tasks, timeout=delay_s)
            second = _spare(model, errand, tried) if hedging.affordable and not tasks[0].done() else None
            if second is not None and hedging.spend():
                tried.add(second.name)
                tasks.append(create(on(second), name=f"hedge on {second.name}"))
        taken = await _first_answer(tasks)
        return taken.result()
    finally:
        try:
            await _end([task for task in tasks if task is not taken])
        except asyncio.CancelledError:
            if taken is not None:  # the caller left just now, and will not take it
                _drop(taken)
            raise
        if taken is not None:
            for call in receipt.calls[calls:]:
                if (wait_s := _waited(call)) is not None:
                    hedging.waited(size, wait_s)


def _spare(model: RealModel, errand: Errand, tried: set[str]) -> Backend | None:
    """Another replica that is well."""
    try:
        found = model.replicas.pick(tried, errand.session, errand.prompt, errand.salt)
    except NoneLive:
        return None
    return found if found.breaker.state == "closed" else None


async def _first_answer(tasks: Sequence[Attempt]) -> Attempt:
    """The first that has more to say than that its replica failed; the last, when none has."""
    waiting: set[Attempt] = set(tasks)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task in done]  # both may have ended in one turn of the loop
        for task in ended:
            if task.exception() is not None or isinstance(task.result(), Begun):
                return task
        if not waiting:
            return ended[-1]


async def _end(losers: Sequence[Attempt]) -> None:
    """Cancelled meanwhile, it drops what they bring all the same."""
    for task in losers:
        task.cancel()
    try:
        if losers:
            await asyncio.wait(losers)
    finally:
        for task in losers:
            if task.done():
                _drop(task)
            else:
                task.add_done_callback(_drop)


def _drop(task: Attempt) -> None:
    # One that has answered in the same turn of the loop as the one that is taken is not cancelled.
    if not task.cancelled() and task.exception() is None and isinstance(begun := task.result(), Begun):
        begun.drop()


def _waited(call: UpstreamCall) -> float | None:
    """How long the call had been waited for, seconds, when it answered or was given up; None: it failed."""
    if call.outcome == "cancelled" and call.first is None and call.ended is not None:
        return call.ended - call.started
    return call.first - call.started if call.first is not None and call.outcome in (None, "ok") else None
