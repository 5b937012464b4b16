"""The relay: a request to one replica of a model after another, and the answer of the first that has one, as it wrote it."""

from __future__ import annotations

import asyncio
from random import Random

from gateway.pool.replicas import NoneLive
from gateway.serving.attempt import Way, attempt
from gateway.serving.call import Answer, Receipt
from gateway.serving.errand import Errand
from gateway.serving.retry import Failure
from gateway.serving.state import RealModel
from gateway.wire.errors import ApiError, retry_after


async def relay(way: Way, random: Random, model: RealModel, errand: Errand, receipt: Receipt) -> Answer:
    """Sends the request to one replica after another, until one answers. Raises ApiError.

    Unless a stream is returned, nothing is left open. A stream is returned with its first bytes at hand, so all that can fail before the
    caller hears anything has failed by then, and was tried elsewhere.
    """
    receipt.served_model = model.public
    receipt.rates = model.rates
    tried: set[str] = set()
    last: Failure | None = None
    while len(tried) < model.retry.attempts:
        try:
            backend = model.replicas.pick(tried, errand.session, errand.prompt)
        except NoneLive as none:
            if last is None:
                raise _none_live(none) from None
            wait = model.retry.wait_s(last.retry_after_s, way.patience.left_s(), random)
            if wait is None or receipt.attempts >= model.retry.attempts:
                break
            await asyncio.sleep(wait)
            receipt.waited += wait
            tried.clear()
            continue
        tried.add(backend.name)
        outcome = await attempt(way, backend, model, errand, receipt)
        if isinstance(outcome, Answer):
            return outcome
        last = outcome
        if not outcome.elsewhere or receipt.attempts >= model.retry.attempts:
            break
    assert last is not None, "an attempt was made"
    way.patience.close()
    if isinstance(last.told, ApiError):
        raise last.told
    return last.told


def _none_live(none: NoneLive) -> ApiError:
    if none.wait_s is None:
        return ApiError(503, "backend_unavailable", "No backend serves this model now.", headers=retry_after(30.0))
    return ApiError(503, "backend_unavailable", "Every backend of this model is cooling down.", headers=retry_after(none.wait_s))
