"""A line in the log for each request that has ended: ids, names and numbers."""

from __future__ import annotations

import logging
from time import perf_counter

from gateway.serving.call import Receipt
from gateway.telemetry.metrics import OTHER, ROUTES
from gateway.telemetry.names import METHODS

log = logging.getLogger("trilemma.access")


def told(receipt: Receipt) -> None:
    """Writes the line, if anybody hears it."""
    if not log.isEnabledFor(logging.INFO):
        return
    call, principal, usage, overhead = receipt.call, receipt.principal, receipt.usage, receipt.overhead
    route = OTHER if call is None else ROUTES.get(call.path, OTHER)
    method = call.method if call is not None and call.method in METHODS else "_OTHER"
    fields = {
        "request_id": receipt.request_id,
        "decision_id": receipt.decision_id,
        "key": None if principal is None else principal.key,
        "tenant": None if principal is None else principal.tenant,
        "method": method,
        "route": route,
        # What a caller made up is nobody's name.
        "model": None if receipt.served_model is None else receipt.requested_model,
        "served_model": receipt.served_model,
        "backend": receipt.backend,
        "policy": None if receipt.plan is None else receipt.policy,
        "plan": receipt.plan,
        "status": receipt.status,
        "outcome": receipt.outcome,
        "code": receipt.code,
        "attempts": receipt.attempts,
        "prompt_tokens": None if usage is None else usage.prompt,
        "cached_tokens": None if usage is None else usage.cached,
        "completion_tokens": None if usage is None else usage.completion,
        "cost_usd": None if usage is None else receipt.cost,
        "duration_ms": round((perf_counter() - receipt.received) * 1e3, 3),
        "overhead_ms": None if overhead is None else round(overhead * 1e3, 3),
    }
    log.info("%s %s %d", method, route, receipt.status, extra=fields)
