"""Prompts and answers as rows of `contents`: only where `storage.contents.enabled` says so, and no more of each than it allows."""

from __future__ import annotations

from gateway.store.writer import Row


def contents_row(decision_id: str, prompt: bytes, answer: bytes | None, max_bytes: int) -> tuple[Row, int]:
    """The row, and the bytes of text in it, as `Writer.put` wants them.

    prompt: `messages` or `prompt` of the request, JSON as it came. answer: the body, JSON, or a stream's text; None: there was none.
    max_bytes: of each; what is longer is cut, between two characters, and `truncated` says so.
    """
    texts = [None if text is None else _text(text[:max_bytes]) for text in (prompt, answer)]
    truncated = len(prompt) > max_bytes or (answer is not None and len(answer) > max_bytes)
    return (decision_id, *texts, truncated), min(len(prompt), max_bytes) + min(len(answer or b""), max_bytes)


def _text(data: bytes) -> str:
    """UTF-8, but for what is none, or was cut through; without NUL, which PostgreSQL does not take."""
    return data.decode("utf-8", "ignore").replace("\0", "")
