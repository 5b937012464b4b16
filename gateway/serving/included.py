"""What a caller asks to be told of a strategy besides its answer, with the `include` of the body object `trilemma`.

decision     in `usage.trilemma`: who served it, by which plan, and what it cost
candidates   in `usage.trilemma`: every candidate, as in the receipt
progress     in a stream: a chunk without choices for each candidate that has ended
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

import msgspec
import orjson

from gateway.serving.call import Answer, Receipt
from gateway.serving.decision import tried
from gateway.serving.options import Include
from gateway.wire.request import json_object

Tell = Callable[[int], None]

_WITH_USAGE: Final = frozenset(("decision", "candidates"))


async def including(work: Awaitable[Answer], receipt: Receipt, include: Collection[Include]) -> Answer:
    """The answer that `work` gives, and in its usage what is asked for; unchanged where the engine told of no usage."""
    answer = await work
    if answer.status != 200 or not tells_usage(include):
        return answer
    body = json_object(answer.body)
    usage: dict[str, Any] | None = None if body is None else body.get("usage")
    if usage is None:
        return answer
    told = usage["trilemma"]
    if "decision" in include:
        told["decision"] = {
            "id": receipt.decision_id,
            "policy": receipt.policy,
            "plan": receipt.plan,
            "strategy": receipt.strategy,
            "why": receipt.why,
            "served_model": receipt.served_model,
            "attempts": receipt.attempts,
            "cost": receipt.cost,
        }
    if "candidates" in include:
        told["candidates"] = tried(receipt.tried)
    return msgspec.structs.replace(answer, body=orjson.dumps(body))


def tells_usage(include: Collection[Include]) -> bool:
    """Whether it asks for something that stands in the usage."""
    return not _WITH_USAGE.isdisjoint(include)


def progress(receipt: Receipt, model: str, send: Callable[[bytes], None]) -> Tell:
    """Sends a chunk that says how many candidates have ended, at each."""
    head = {
        "id": receipt.request_id,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": [],
    }
    return partial(_send, head, send)


def _send(head: dict[str, Any], send: Callable[[bytes], None], ended: int) -> None:
    send(b"data: %b\n\n" % orjson.dumps({**head, "trilemma": {"progress": {"ended": ended}}}))
