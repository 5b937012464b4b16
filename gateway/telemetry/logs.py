"""Logs to stderr: lines for people, or one JSON object per line, with secrets masked.

    {"time": "2026-11-30T12:00:00.123Z", "level": "INFO", "logger": "trilemma", "message": "...", "request_id": "...", "exception": "..."}

Beyond these keys a line has those of `FIELDS` that its record carries. No line holds a body; what is very long is cut.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO

import orjson

from gateway.config.schema import Logs
from gateway.telemetry.redaction import Redactor

FIELDS: Final = (
    "request_id",
    "decision_id",
    "key",
    "tenant",
    "method",
    "route",
    "model",
    "served_model",
    "backend",
    "policy",
    "plan",
    "status",
    "outcome",
    "code",
    "attempts",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_usd",
    "duration_ms",
    "overhead_ms",
)
"""What a record may carry (`extra`)."""

# The caller's to choose; all others are names of the configuration's and numbers.
_CALLERS: Final = "request_id"
_LONGEST: Final = 8_192
_LONGEST_TRACEBACK: Final = 32_768
_CONTROLS: Final[Mapping[int, str]] = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160)) if code not in (9, 10)}


class _Formatter(logging.Formatter):
    """What both forms share: the pieces of a line, masked and cut."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _message(self, record: logging.LogRecord) -> str:
        return self._clean(record.getMessage(), _LONGEST)

    def _exception(self, record: logging.LogRecord) -> str | None:
        parts = [] if not record.exc_info else [self.formatException(record.exc_info)]
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return self._clean("\n".join(parts), _LONGEST_TRACEBACK) if parts else None

    def _clean(self, text: str, longest: int) -> str:
        text = self._redactor(text)
        return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 2 :]}"

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        values = ((name, getattr(record, name, None)) for name in FIELDS)
        return {name: self._clean(str(value), 256) if name == _CALLERS else value for name, value in values if value is not None}


class JsonFormatter(_Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        line = {"time": at, "level": record.levelname, "logger": record.name, "message": self._message(record)}
        line |= self._fields(record)
        exception = self._exception(record)
        if exception is not None:
            line["exception"] = exception
        return orjson.dumps(line, default=str).decode()


class TextFormatter(_Formatter):
    """A line for people; a traceback follows it. No other line end, and nothing that acts on a terminal, comes out of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        message = self._message(record).translate(_CONTROLS).replace("\n", "\\n")
        fields = "".join(f" {name}={value}" for name, value in self._fields(record).items() if str(value) not in message)
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {message}{fields}"
        exception = self._exception(record)
        return line if exception is None else f"{line}\n{exception.translate(_CONTROLS)}"


class LogOutput:
    """Where this process's log goes. level: wins over the settings', if given."""

    def __init__(self, redactor: Redactor, level: str | None = None, stream: TextIO | None = None) -> None:
        self._redactor = redactor
        self._level = level
        self._handler = logging.StreamHandler(sys.stderr if stream is None else stream)
        self.apply(Logs())

    def apply(self, settings: Logs) -> None:
        """Form and level, from now on."""
        formatter = JsonFormatter if settings.format == "json" else TextFormatter
        self._handler.setFormatter(formatter(self._redactor))
        logging.getLogger().setLevel((self._level or settings.level).upper())

    def tell(self, text: str) -> None:
        """A line for whoever started the process, whatever the level: as it is, or as an object where all lines are."""
        if isinstance(self._handler.formatter, JsonFormatter):
            self._handler.emit(logging.LogRecord("trilemma", logging.INFO, __file__, 0, text, None, None))
        else:
            print(text, file=self._handler.stream, flush=True)

    def install(self) -> None:
        """Takes over the process's logging: uvicorn's, warnings, and what ends a thread or the process too."""
        logging.basicConfig(handlers=[self._handler], level=logging.getLogger().level)
        logging.getLogger("uvicorn").setLevel("WARNING")  # it tells of each connection
        logging.captureWarnings(True)
        sys.excepthook = _ended
        threading.excepthook = _thread_ended


def _ended(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    logging.getLogger("trilemma").critical("the process ends", exc_info=(kind, error, traceback))


def _thread_ended(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_value is not None:
        name = "" if hook.thread is None else hook.thread.name
        logging.getLogger("trilemma").critical("the thread %s ends", name, exc_info=hook.exc_value)
