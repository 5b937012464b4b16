"""The tokens that a request will use, estimated from above before it runs; and those that it has used, when it has ended."""

from __future__ import annotations

import re
from typing import Final

from gateway.access.limit import Need
from gateway.serving.call import Receipt
from gateway.wire.request import Fields

# What is no text, an image as a rule, is not read four bytes at a time. Runs begin where one can, so that none is looked at twice.
_ENCODED: Final = re.compile(rb'(?:;base64,|")[A-Za-z0-9+/=_-]{4096,}')
_LONG: Final = 8_192
_TOKENS_OF_ENCODED: Final = 1_000


def need_of(body: bytes, fields: Fields, *, answers: bool) -> Need:
    """body: its JSON; empty for a form, whose files are no text. answers: whether the model writes text, and does not only read."""
    size = len(body)
    prompt = 0
    if size > _LONG:
        for run in _ENCODED.finditer(body):
            size -= run.end() - run.start()
            prompt += _TOKENS_OF_ENCODED
    prompt += -(-size // 4)
    if not answers:
        return Need(prompt, 0)
    most = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    if most is None or most < 0:  # -1: as many as there is room for
        return Need(prompt, None)
    return Need(prompt, int(most) * int(fields.n or 1))


def spent(receipt: Receipt) -> int | None:
    """All tokens of all its calls, as far as they are known; None: nobody told, and it may have used what was estimated."""
    found = [call.usage for call in receipt.calls if call.usage is not None]
    if found or not receipt.calls or receipt.outcome in ("caller_error", "backend_error"):
        return sum([usage.prompt + usage.completion for usage in found])
    return None
