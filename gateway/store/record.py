"""The record of a request: its receipt as rows of `decisions` and `calls`."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from time import perf_counter, time
from typing import Final, Protocol

import msgspec

from gateway.serving.call import Receipt, Tries, UpstreamCall
from gateway.serving.choice import Choice
from gateway.store.contents import contents_row
from gateway.store.writer import Row

Settled = Callable[[Receipt], None]
Pseudonym = Callable[[str, str], str]

_encoded = msgspec.json.Encoder().encode
_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,200}\Z")
_TAG = re.compile(r"[A-Za-z0-9._:/@+ -]{1,64}\Z")


class Put(Protocol):
    """Writer.put."""

    def __call__(self, table: str, row: Row, text: int = 0) -> object:
        """Takes a row; text: bytes of it."""
        ...


def pseudonyms(secret: bytes | None) -> Pseudonym:
    """(tenant, id) -> 32 hex digits that stand for it in rows: the same ones under the same secret, and nothing to be guessed without it.

    Without a secret they are this process's own.
    """
    key = hashlib.blake2b(secret if secret is not None else secrets.token_bytes(32), digest_size=32, person=b"session").digest()
    keyed = hashlib.blake2b(digest_size=16, key=key)

    def pseudonym(tenant: str, id_: str) -> str:
        digest = keyed.copy()
        digest.update(f"{len(tenant)}:{tenant}{id_}".encode("utf-8", "replace"))
        return digest.hexdigest()

    return pseudonym


def decision_row(receipt: Receipt, tenant: str, key_name: str, received: float, latency_s: float, session: str | None) -> Row:
    """The row of `decisions`. received: seconds since 1970.

    A caller's word for a model, or a tag, is kept only if it could be a name: anything may stand there.
    """
    usage = receipt.usage
    choice = receipt.choice
    requested = receipt.requested_model
    if receipt.served_model is None and requested is not None and not _NAME.match(requested):
        requested = None
    served = _served(receipt)
    guessed = (served is not None and served.estimated) or (bool(receipt.tried) and any(call.estimated for call in receipt.calls))
    first = None if served is None or not served.status else served.first
    return (
        receipt.decision_id,
        receipt.request_id,
        received,
        tenant,
        key_name,
        requested,
        receipt.served_model,
        receipt.backend,
        receipt.policy,
        receipt.plan,
        receipt.strategy,
        receipt.propensity,
        receipt.explored,
        receipt.attempts,
        receipt.status or None,
        receipt.outcome,
        receipt.code,
        None if usage is None else usage.prompt,
        None if usage is None else usage.cached,
        None if usage is None else usage.completion,
        None if usage is None else guessed,
        None if usage is None else receipt.cost,
        None if first is None else first - receipt.received,
        latency_s,
        receipt.overhead,
        receipt.events,
        session,
        None if receipt.tags is None else _tags(receipt.tags),
        receipt.learn,
        receipt.config_hash,
        *(_NO_CHOICE if choice is None else _chosen(choice)),
        _encoded(Tries(receipt.tried, receipt.why)).decode() if receipt.tried else None,
    )


_NO_CHOICE: Final = (None,) * 6


def _chosen(choice: Choice) -> Row:
    """What a policy's choice adds to the row: numbers and names."""
    decided = _encoded(choice.decided).decode()
    return (choice.features, choice.feature_version, decided, choice.snapshot, choice.unit, choice.first_turn)


def call_row(decision_id: str, n: int, call: UpstreamCall, received: float) -> Row:
    """The row of `calls` of the nth call. received: when the request came, time.perf_counter()."""
    usage, first, ended = call.usage, call.first, call.ended
    return (
        decision_id,
        n,
        call.purpose,
        call.backend,
        call.model,
        call.status or None,
        call.outcome,
        call.fault,
        None if usage is None else usage.prompt,
        None if usage is None else usage.cached,
        None if usage is None else usage.completion,
        None if usage is None else call.estimated,
        None if usage is None else call.rates.cost(usage),
        (call.started - received) * 1e3,
        None if first is None else (first - received) * 1e3,
        None if ended is None else (ended - received) * 1e3,
    )


def recording(put: Put, settled: Settled, pseudonym: Pseudonym) -> Settled:
    """Puts the rows of each ended request, then tells `settled`. Callers without a key leave no row: strangers must not fill a disk."""

    def settle(receipt: Receipt) -> None:
        principal = receipt.principal
        if principal is not None:
            latency_s = perf_counter() - receipt.received
            tenant = principal.tenant
            session = None if receipt.session is None else pseudonym(tenant, receipt.session)
            put("decisions", decision_row(receipt, tenant, principal.key, time() - latency_s, latency_s, session))
            for n, call in enumerate(receipt.calls):
                put("calls", call_row(receipt.decision_id, n, call, receipt.received))
            if (words := receipt.words) is not None and words.kept is not None:
                answer = None if words.answer is None else bytes(words.answer[: words.kept + 1])
                row, size = contents_row(receipt.decision_id, words.prompt, answer, words.kept)
                put("contents", row, size)
        settled(receipt)

    return settle


def _served(receipt: Receipt) -> UpstreamCall | None:
    """The call whose answer is the request's."""
    calls = receipt.calls
    if len(calls) == 1:
        return calls[0]
    backend = receipt.backend
    return next((call for call in reversed(calls) if call.backend == backend and call.purpose == "served"), None)


def _tags(tags: Mapping[str, str]) -> str:
    kept = {name: value for name, value in tags.items() if _TAG.match(name) and _TAG.match(value)}
    return json.dumps(kept, sort_keys=True)
