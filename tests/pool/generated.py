"""Answers as hypothesis makes them up: mostly good, often with one thing wrong, cut and split anywhere.

`odd` names what is unusual about an answer, so that a test can say what it makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

LINE = b"\r\n"


@dataclass(frozen=True)
class Answer:
    """The bytes of an answer, in the pieces in which they are sent; then the connection is closed."""

    pieces: tuple[bytes, ...]
    odd: frozenset[str]

    @property
    def raw(self) -> bytes:
        return b"".join(self.pieces)


_STATUS = st.sampled_from([200, 200, 200, 200, 201, 204, 206, 299, 302, 304, 400, 404, 429, 500, 503, 600])
_REASON = st.sampled_from([b" OK", b" OK", b" Some Reason", b" ", b""])
_NAME = st.sampled_from([b"x-a", b"X-B", b"content-type", b"date", b"Server", b"x_c", b"trailer"])
_VALUE = st.one_of(
    st.sampled_from([b"", b"a", b"text/plain; charset=utf-8", b"a, b", b"Mon, 30 Nov 2026 18:00:00 GMT"]),
    st.binary(max_size=12).map(lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F).strip()),
)
_BODY = st.one_of(st.just(b""), st.just(b"hello"), st.binary(max_size=300), st.just(b"0\r\n\r\n"), st.just(b"HTTP/1.1 200 OK\r\n\r\n"))

_INTERIM = {
    "": b"",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n",
    "hints": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\n",
    "interim with length": b"HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n\r\n",
    "unknown interim with body": b"HTTP/1.1 199 Odd\r\ncontent-length: 5\r\n\r\nhello",
    "interim in chunks": b"HTTP/1.1 102 Processing\r\ntransfer-encoding: chunked\r\n\r\n",
    "interim that closes": b"HTTP/1.1 103 Early Hints\r\nconnection: close\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
}
_BAD_LINES = {
    "folded header": b"x-a: b\r\n c\r\n",
    "no colon": b"nonsense\r\n",
    "space before colon": b"x-a : b\r\n",
    "empty name": b": b\r\n",
    "NUL": b"x-a: b\0c\r\n",
    "control character": b"x-a: b\x01c\r\n",
    "bare LF": b"x-a: b\nx-c: d\r\n",
    "bare CR": b"x-a: b\rx-c: d\r\n",
    "name that is no token": b"x(a): b\r\n",
}
_CODINGS = {
    "coding under chunked": b"gzip, chunked",
    "coding over chunked": b"chunked, gzip",
    "other coding": b"gzip",
    "like chunked": b"xchunked",
    "identity": b"identity",
    "chunked twice": b"chunked, chunked",
    "capital chunked": b"Chunked",
    "chunked with parameter": b"chunked;q=1",
}
_LENGTHS = {
    "negative length": b"-%d",
    "signed length": b"+%d",
    "hex length": b"0x%x",
    "list of lengths": b"%d, %d",
    "zeros before length": b"000%d",
    "space in length": b"%d 0",
}


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> tuple[bytes, str]:
    """A body in chunks of any size, with what may and may not stand between them."""
    odd = draw(
        st.sampled_from(
            [""] * 6
            + [
                "extension",
                "trailers",
                "framing in trailers",
                "bare LF in chunks",
                "space after size",
                "no last chunk",
                "bad size",
                "no end",
            ]
        )
    )
    end = b"\n" if odd == "bare LF in chunks" else LINE
    extension = {"extension": b';a=b;c="d"', "space after size": b" "}.get(odd, b"")
    out = bytearray()
    rest = body
    while rest:
        size = draw(st.integers(1, len(rest)))
        form = draw(st.sampled_from([b"%x", b"%X", b"0%x"])) % size
        out += form + extension + end + rest[:size] + (b"" if odd == "no end" else end)
        rest = rest[size:]
    if odd == "bad size":
        out += draw(st.sampled_from([b"-1", b"0x1", b"g", b"", b"ffffffffffffffffff"])) + end
    if odd != "no last chunk":
        trailers = {"trailers": b"x-a: b\r\nx-a: c\r\n", "framing in trailers": b"x-sum: 1\r\ncontent-length: 3\r\n"}
        out += b"0" + extension + end + trailers.get(odd, b"") + end
    return bytes(out), odd


@st.composite
def framed(draw: st.DrawFn, body: bytes) -> tuple[bytes, bytes, set[str]]:
    """Framing headers, the body as it goes over the wire, and what is odd about them."""
    kind = draw(
        st.sampled_from(["length", "length", "chunked", "chunked", "none", "both", "lengths", "coding", "odd length", "wrong length"])
    )
    length = b"content-length: %d\r\n" % len(body)
    if kind == "none":
        return b"", body, {"no framing"}
    if kind == "length":
        return length, body, set()
    if kind == "wrong length":
        wrong = draw(st.integers(0, 400))
        return b"content-length: %d\r\n" % wrong, body, {"more"} if wrong < len(body) else {"less"} if wrong > len(body) else set()
    if kind == "odd length":
        odd = draw(st.sampled_from(sorted(_LENGTHS)))
        form = _LENGTHS[odd]
        return b"content-length: " + form % ((len(body),) * form.count(b"%")) + LINE, body, {odd}
    if kind == "lengths":
        other = draw(st.sampled_from([len(body), len(body) + 1, 0]))
        return length + b"Content-Length: %d\r\n" % other, body, {"two lengths"}
    wire, odd = draw(chunked(body))
    if kind == "chunked":
        return b"transfer-encoding: chunked\r\n", wire, {odd} - {""}
    if kind == "both":
        both = [length, b"transfer-encoding: chunked\r\n"]
        return b"".join(draw(st.permutations(both))), draw(st.sampled_from([body, wire])), {"both framings", odd} - {""}
    coding = draw(st.sampled_from(sorted(_CODINGS)))
    sent = wire if coding == "capital chunked" else draw(st.sampled_from([body, wire]))
    return b"transfer-encoding: " + _CODINGS[coding] + LINE, sent, {coding, odd} - {""}


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """A whole connection's worth of bytes."""
    odd: set[str] = set()
    interim = draw(st.sampled_from([""] * 16 + ["continue", "hints"] * 2 + sorted(_INTERIM)))
    version = draw(st.sampled_from([b"HTTP/1.1"] * 20 + [b"HTTP/1.0"] * 3 + [b"HTTP/1.2", b"http/1.1"]))
    status = draw(_STATUS)
    framing, wire, odd_framing = draw(framed(draw(_BODY)))
    lines = [name + draw(st.sampled_from([b": ", b":", b":  "])) + draw(_VALUE) + LINE for name in draw(st.lists(_NAME, max_size=3))]
    lines.append(framing)
    if draw(st.integers(0, 4)) == 0:
        lines.append(b"connection: " + draw(st.sampled_from([b"close", b"keep-alive", b"Close", b"upgrade"])) + LINE)
    if draw(st.integers(0, 11)) == 0:
        bad = draw(st.sampled_from(sorted(_BAD_LINES)))
        lines.append(_BAD_LINES[bad])
        odd.add(bad)
    head = version + b" %03d" % status + draw(_REASON) + LINE + b"".join(draw(st.permutations(lines))) + LINE
    after = draw(st.sampled_from([b""] * 9 + [LINE, b"garbage", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"]))
    raw = _INTERIM[interim] + head + wire + after
    odd |= odd_framing | ({interim} - {"", "continue", "hints"}) | ({"after"} if after else set())
    odd |= {"bodiless"} if status in (204, 304) else set()
    odd |= {version.decode()} - {"HTTP/1.1"}
    if draw(st.integers(0, 5)) == 0:
        raw = raw[: draw(st.integers(0, len(raw)))]
        odd.add("cut")
    if draw(st.integers(0, 11)) == 0 and raw:
        at = draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + draw(st.sampled_from([b"\0", b"\n", b"\r", b" ", b":", b"1", b"\x80", b"H", b",", b""])) + raw[at + 1 :]
        odd.add("changed byte")
    cuts = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=4)) | {0, len(raw)})
    if draw(st.integers(0, 19)) == 0:
        cuts = list(range(len(raw) + 1))
    return Answer(tuple(raw[a:b] for a, b in pairwise(cuts)), frozenset(odd))
