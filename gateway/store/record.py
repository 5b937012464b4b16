"""The record of a request: its receipt as a row of `decisions`."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import perf_counter, time

from gateway.serving.call import Receipt
from gateway.store.writer import Row

Settled = Callable[[Receipt], None]

COLUMNS = (
    "id",
    "request_id",
    "created",
    "tenant",
    "key_name",
    "requested_model",
    "served_model",
    "backend",
    "policy",
    "strategy",
    "propensity",
    "attempts",
    "status",
    "outcome",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_usd",
    "latency_s",
    "overhead_s",
    "events",
    "config_hash",
)
"""The columns of a row, in order."""

_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,200}\Z")


def row(receipt: Receipt, tenant: str, key_name: str) -> Row:
    """The row of a request that ends now. A caller's word for a model is kept only if it could be one: anything may stand there."""
    latency = perf_counter() - receipt.received
    usage = receipt.usage
    requested = receipt.requested_model
    if receipt.served_model is None and requested is not None and not _NAME.match(requested):
        requested = None
    return (
        receipt.decision_id,
        receipt.request_id,
        time() - latency,
        tenant,
        key_name,
        requested,
        receipt.served_model,
        receipt.backend,
        receipt.policy,
        receipt.strategy,
        receipt.propensity,
        receipt.attempts,
        receipt.status or None,
        receipt.outcome,
        None if usage is None else usage.prompt,
        None if usage is None else usage.cached,
        None if usage is None else usage.completion,
        None if usage is None else receipt.cost,
        latency,
        receipt.overhead,
        receipt.events,
        receipt.config_hash,
    )


def recording(put: Callable[[Row], None], settled: Settled) -> Settled:
    """Puts the row of each ended request, then tells `settled`. Callers without a key leave no row: strangers must not fill a disk."""

    def settle(receipt: Receipt) -> None:
        principal = receipt.principal
        if principal is not None:
            put(row(receipt, principal.tenant, principal.key))
        settled(receipt)

    return settle
