"""Answers as servers give them, by name, and what is to be made of each."""

from __future__ import annotations

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"

# name -> (bytes, status, body); the connection stays open
WHOLE: dict[str, tuple[bytes, int, bytes]] = {
    "content-length": (HELLO, 200, b"hello"),
    "empty": (OK + b"content-length: 0\r\n\r\n", 200, b""),
    "chunked": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, b"hello"),
    "chunk extensions": (OK + b'transfer-encoding: chunked\r\n\r\n5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n', 200, b"hello"),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\nx-two: 2\r\n\r\n", 200, b"hello"),
    "odd chunk sizes": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n1\r\nh\r\n00a\r\nello world\r\n1F\r\n" + b"x" * 31 + b"\r\n000\r\n\r\n",
        200,
        b"hello world" + b"x" * 31,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
    "continue first": (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, 200, b"hello"),
    "early hints first": (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n" + HELLO, 200, b"hello"),
    "several interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 X\r\na: b\r\n\r\n" + HELLO,
        200,
        b"hello",
    ),
    "HTTP/1.0, kept": (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello"),
    "no reason": (b"HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\nhello", 200, b"hello"),
    "no reason, no space": (b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello"),
    "unknown status 299": (b"HTTP/1.1 299 Odd\r\ncontent-length: 5\r\n\r\nhello", 299, b"hello"),
    "unknown status 600": (b"HTTP/1.1 600 Odd\r\ncontent-length: 5\r\n\r\nhello", 600, b"hello"),
    "an error": (b"HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nhello", 500, b"hello"),
    "a redirect": (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 5\r\n\r\nhello", 302, b"hello"),
}

# name -> (bytes, body) of status 200; the connection is closed behind them
UNTIL_CLOSED: dict[str, tuple[bytes, bytes]] = {
    "no framing": (OK + b"\r\nhello", b"hello"),
    "no framing, empty": (OK + b"content-type: text/plain\r\n\r\n", b""),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    "connection: close": (OK + b"connection: close\r\n\r\nhello", b"hello"),
}

# no answers
BROKEN: dict[str, bytes] = {
    "garbage": b"\x16\x03\x01\x02\x00 hello\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "HTTP/0.9": b"<html>hello</html>\r\n\r\n",
    "a header without colon": OK + b"content-length: 5\r\nnonsense\r\n\r\nhello",
    "a space before the colon": OK + b"content-length : 5\r\n\r\nhello",
    "a NUL in a header": OK + b"x-a: b\0c\r\ncontent-length: 5\r\n\r\nhello",
    "both framings": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "both framings, turned": OK + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "two different lengths": OK + b"content-length: 5\r\ncontent-length: 4\r\n\r\nhello",
    "two lengths in one": OK + b"content-length: 5, 4\r\n\r\nhello",
    "a negative length": OK + b"content-length: -5\r\n\r\nhello",
    "a length with a sign": OK + b"content-length: +5\r\n\r\nhello",
    "a length in hex": OK + b"content-length: 0x5\r\n\r\nhello",
    "an empty length": OK + b"content-length:\r\n\r\nhello",
    "a length beyond counting": OK + b"content-length: 99999999999999999999999\r\n\r\nhello",
    "a huge length": OK + b"content-length: 9223372036854775807\r\n\r\nhello",
    "a negative chunk": OK + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond counting": OK + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk without size": OK + b"transfer-encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
    "a chunk that is longer than it says": OK + b"transfer-encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\ncontent-length: 5\r\n\r\nhello",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\ncontent-length: 5\r\n\r\nhello",
    "a status that is none": b"HTTP/1.1 abc OK\r\ncontent-length: 5\r\n\r\nhello",
    "a status below 100": b"HTTP/1.1 099 OK\r\ncontent-length: 5\r\n\r\nhello",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello",
    "an upgrade that does not say to what": b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + HELLO,
    "only an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
    "nothing": b"",
}


# name -> (bytes, body); the connection behind the answer must not be used again
NOT_REUSED: dict[str, tuple[bytes, bytes]] = {
    "connection: close": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "garbage after it": (HELLO + b"garbage", b"hello"),
    "part of an answer after it": (HELLO + b"HTTP/1.1 2", b"hello"),
    "another answer after it": (HELLO + OK + b"content-length: 6\r\n\r\nsecond", b"hello"),
    "an unfinished answer after it": (HELLO + OK + b"content-length: 60\r\n\r\nsecond", b"hello"),
    "body after no content": (b"HTTP/1.1 204 No Content\r\n\r\nhello", b""),
    "chunks after the last": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
}
