"""A request that is only tried: what would be decided for it, by the same code, and nothing is called, kept or counted."""

from __future__ import annotations

import orjson

from gateway.serving import decision
from gateway.serving.call import Answer, Receipt
from gateway.serving.state import State
from gateway.wire.errors import JSON


def told(state: State, receipt: Receipt) -> Answer:
    """The decision that stands on the receipt, as an answer."""
    return Answer(200, [JSON, *receipt.headers(stream=False)], orjson.dumps(decision.of_receipt(state, receipt)))
