"""An event-stream parser written from the text of the WHATWG HTML standard (9.2.6), byte by byte and slow, to hold ours against."""

from __future__ import annotations


def lines_of(stream: bytes) -> list[bytes]:
    """Every line that CR LF, LF or CR ended; what no line end followed is not among them."""
    lines: list[bytes] = []
    line = b""
    at = 0
    while at < len(stream):
        byte = stream[at : at + 1]
        at += 1
        if byte not in (b"\r", b"\n"):
            line += byte
            continue
        if byte == b"\r" and stream[at : at + 1] == b"\n":
            at += 1
        lines.append(line)
        line = b""
    return lines


def dispatched(stream: bytes) -> list[bytes]:
    """The data of every event that a client is given."""
    events: list[bytes] = []
    buffer = b""
    for line in lines_of(stream.removeprefix("\N{BOM}".encode())):
        if not line:
            if buffer:
                events.append(buffer[:-1])
            buffer = b""
            continue
        if line.startswith(b":"):
            continue
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            buffer += value + b"\n"
    return events
