"""Log probabilities of sampled tokens, in the two shapes that engines use, whatever the endpoint.

chat     {"content": [{"token", "logprob", "bytes"?, "id"?, "top_logprobs": [...]}]}
         on /v1/chat/completions; llama.cpp uses it on /v1/completions too
legacy   {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{token: logprob}], "text_offset"}
         on /v1/completions
"""

from __future__ import annotations

from typing import Any

from gateway.engines.base import Json, TokenLogprob, UnexpectedAnswerError

ID_PREFIX = "token_id:"
"""How vLLM writes a token under `return_tokens_as_token_ids`."""


def token_logprobs(choice: Json) -> list[TokenLogprob] | None:
    """The scored tokens of a choice or of a chunk's choice; None when it carries none. Raises UnexpectedAnswerError."""
    logprobs = choice.get("logprobs")
    if logprobs is None:
        return None
    if not isinstance(logprobs, dict):
        raise UnexpectedAnswerError("logprobs is no object")
    if "tokens" in logprobs:
        scored = _legacy(logprobs)
    elif logprobs.get("content") is None:
        return None
    else:
        scored = [_chat(entry) for entry in _list(logprobs["content"])]
    return _with_ids(scored, choice.get("token_ids"))


def _chat(entry: Any) -> TokenLogprob:
    if not isinstance(entry, dict):
        raise UnexpectedAnswerError("an entry of logprobs.content is no object")
    token, top = entry.get("token"), entry.get("top_logprobs")
    if not isinstance(token, str):
        raise UnexpectedAnswerError("an entry of logprobs.content has no token")
    return TokenLogprob(
        token=token,
        logprob=_number(entry.get("logprob")),
        id=entry["id"] if isinstance(entry.get("id"), int) else token_id(token),
        bytes=_bytes(entry.get("bytes")),
        top=() if top is None else tuple(_chat(other) for other in _list(top)),
    )


def _legacy(logprobs: Json) -> list[TokenLogprob]:
    tokens, scores = _list(logprobs["tokens"]), _list(logprobs.get("token_logprobs"))
    tops = logprobs.get("top_logprobs")
    tops = [None] * len(tokens) if tops is None else _list(tops)
    if not len(tokens) == len(scores) == len(tops):
        raise UnexpectedAnswerError("logprobs.tokens, token_logprobs and top_logprobs differ in length")
    return [
        TokenLogprob(
            token=token,
            logprob=_number(score),
            id=token_id(token),
            top=tuple(TokenLogprob(other, _number(value), token_id(other)) for other, value in (top or {}).items()),
        )
        for token, score, top in zip(tokens, scores, tops, strict=True)
    ]


def token_id(token: str) -> int | None:
    """The id in `token_id:504`; None for a token given as text."""
    digits = token.removeprefix(ID_PREFIX)
    return int(digits) if digits != token and digits.isdecimal() else None


def _with_ids(scored: list[TokenLogprob], ids: Any) -> list[TokenLogprob]:
    """Ids that stand beside the tokens (`return_token_ids`): taken only when there is one for each."""
    if not isinstance(ids, list) or len(ids) != len(scored):
        return scored
    return [
        TokenLogprob(one.token, one.logprob, one.id if one.id is not None else number, one.bytes, one.top)
        for one, number in zip(scored, ids, strict=True)
    ]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return bytes(_list(value))
    except (TypeError, ValueError) as error:
        raise UnexpectedAnswerError("a token's bytes are no bytes") from error


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnexpectedAnswerError("a list was expected in logprobs")
    return value
