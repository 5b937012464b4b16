from __future__ import annotations

import pytest

from gateway.wire.headers import REQUEST_ALLOWED, answered, first, forwarded

SECRETS = [
    (b"authorization", b"Bearer sk-caller"),
    (b"cookie", b"session=1"),
    (b"proxy-authorization", b"Basic x"),
    (b"x-api-key", b"other"),
    (b"x-forwarded-for", b"10.0.0.1"),
]
FRAMING = [
    (b"host", b"gateway"),
    (b"content-length", b"5"),
    (b"transfer-encoding", b"chunked"),
    (b"connection", b"keep-alive"),
    (b"te", b"trailers"),
    (b"trailer", b"x"),
    (b"upgrade", b"h2c"),
    (b"expect", b"100-continue"),
    (b"keep-alive", b"timeout=5"),
]


def test_a_backend_sees_the_allowed_headers_as_they_came() -> None:
    sent = [
        (b"content-type", b"application/json; charset=utf-8"),
        (b"accept", b"*/*"),
        (b"traceparent", b"00-1-2-01"),
        (b"user-agent", b"caf\xe9"),
    ]

    assert forwarded([*SECRETS, *sent, *FRAMING]) == sent


def test_no_secret_and_no_framing_is_allowed() -> None:
    assert not REQUEST_ALLOWED & {name for name, _ in SECRETS + FRAMING}


def test_the_operator_may_let_more_through() -> None:
    headers = [(b"x-user", b"u"), (b"x-other", b"o"), (b"accept", b"*/*")]

    assert forwarded(headers, frozenset((b"x-user",))) == [(b"x-user", b"u"), (b"accept", b"*/*")]


@pytest.mark.parametrize(
    "connection",
    [
        [(b"connection", b"x-secret")],
        [(b"connection", b"keep-alive, X-Secret")],
        [(b"connection", b"keep-alive"), (b"connection", b" x-secret ")],
    ],
)
def test_what_the_connection_header_names_is_for_one_hop(connection: list[tuple[bytes, bytes]]) -> None:
    headers = [*connection, (b"x-secret", b"1"), (b"accept", b"*/*")]

    assert forwarded(headers, frozenset((b"x-secret",))) == [(b"accept", b"*/*")]
    assert answered(headers) == [(b"accept", b"*/*")]


def test_an_answer_keeps_what_the_backend_says_but_not_its_framing() -> None:
    kept = [
        (b"content-type", b"application/json"),
        (b"retry-after", b"7"),
        (b"retry-after-ms", b"7000"),
        (b"x-ratelimit-remaining-tokens", b"3"),
        (b"openai-processing-ms", b"12"),
        (b"x-custom", b"a"),
        (b"x-custom", b"b"),
    ]
    dropped = [
        *FRAMING[1:7],
        (b"keep-alive", b"timeout=5"),
        (b"content-encoding", b"gzip"),
        (b"proxy-authenticate", b"Basic"),
        (b"server", b"uvicorn"),
        (b"date", b"today"),
        (b"set-cookie", b"a=b"),
        (b"www-authenticate", b"Bearer"),
        (b"x-request-id", b"theirs"),
        (b"x-trilemma-model", b"forged"),
        (b"access-control-allow-origin", b"*"),
        (b"strict-transport-security", b"max-age=1"),
    ]

    assert answered([*kept, *dropped]) == kept


def test_the_first_of_a_name() -> None:
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]

    assert first(headers, b"a") == b"1"
    assert first(headers, b"c") is None
