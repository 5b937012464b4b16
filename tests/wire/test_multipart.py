from __future__ import annotations

from email.parser import BytesParser
from email.policy import HTTP

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.wire.errors import ApiError
from gateway.wire.multipart import form_field

FUZZ = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
KIND = b"multipart/form-data; boundary=b"


def part(name: str, value: bytes, disposition: str = 'form-data; name="{}"', more: str = "") -> bytes:
    return f"--b\r\nContent-Disposition: {disposition.format(name)}\r\n{more}\r\n".encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def field(body: bytes, kind: bytes = KIND) -> bytes | None:
    span = form_field(kind, body, b"model")
    return None if span is None else body[span[0] : span[1]]


def refused(body: bytes, kind: bytes = KIND) -> ApiError:
    with pytest.raises(ApiError) as caught:
        form_field(kind, body, b"model")
    assert caught.value.status == 400
    return caught.value


AUDIO = part("file", b"RIFF\r\n\r\n--\x00\xff", 'form-data; name="{}"; filename="a;b.wav"', "Content-Type: audio/wav\r\n")


def test_a_field_is_found_between_others() -> None:
    assert field(form(AUDIO, part("model", b"whisper"), part("language", b"en"))) == b"whisper"
    assert field(form(part("model", b""), AUDIO)) == b""
    assert field(form(AUDIO, part("language", b"en"))) is None
    assert field(form()) is None


@FUZZ
@given(
    fields=st.dictionaries(st.from_regex(r"[a-z_]{1,8}\Z"), st.binary(max_size=30), max_size=3),
    model=st.text(max_size=8).filter(lambda text: "\r" not in text and "\n" not in text),
    upload=st.binary(max_size=60),
)
def test_what_an_http_client_writes_is_read_as_another_parser_reads_it(fields: dict[str, bytes], model: str, upload: bytes) -> None:
    fields.pop("model", None)
    files = {name: (f"{name}.bin", value) for name, value in fields.items()} | {"file": ("speech é.wav", upload, "audio/wav")}
    request = httpx.Request("POST", "http://x", data={"model": model}, files=files)
    kind, body = request.headers["content-type"].encode(), request.read()

    assert field(body, kind) == model.encode()
    parsed = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind + b"\r\n\r\n" + body)
    (value,) = [
        each.get_payload(decode=True) for each in parsed.iter_parts() if each.get_param("name", header="content-disposition") == "model"
    ]
    assert value == model.encode()


@FUZZ
@given(
    body=st.lists(
        st.sampled_from(
            [b"--b", b"\r\n", b"--", b"model", AUDIO, part("model", b"m"), b'content-disposition: form-data; name="model"', b"x"]
        ),
        max_size=8,
    )
)
def test_no_form_is_a_crash(body: list[bytes]) -> None:
    text = b"".join(body)
    try:
        span = form_field(KIND, text, b"model")
    except ApiError as error:
        assert error.status == 400
    else:
        assert span is None or 0 < span[0] <= span[1] <= len(text)


@pytest.mark.parametrize(
    "body",
    [
        form(part("model", b"cheap"), part("model", b"dear")),
        form(part("model", b"cheap"), AUDIO, part("model", b"dear", "form-data; name={}")),
        form(part("model", b"cheap"), part("model", b"dear", 'FORM-DATA; filename="x"; NAME="{}"')),
    ],
)
def test_a_form_that_names_two_models_is_refused(body: bytes) -> None:
    """The gateway would check one, and the backend might serve the other."""
    assert refused(body).param == "model"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"model=whisper",
        form(AUDIO)[:-6],  # cut before its end
        AUDIO[:20],
        b"--b\r\nno header block",
        b"--b\r\n" + b"X-Long: " + b"x" * 10_000 + b'\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n',
        form(part("model", b"m", "form-data; name*=utf-8''{}"), part("model", b"n")),
        form(*[part(f"f{i}", b"") for i in range(2_000)]),
    ],
)
def test_what_another_parser_might_read_otherwise_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    "kind",
    [
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b"multipart/form-data; boundary=b; boundary=c",
        b'multipart/form-data; boundary="' + b"b" * 71 + b'"',
    ],
)
def test_a_form_has_one_boundary(kind: bytes) -> None:
    refused(form(part("model", b"m")), kind)


@pytest.mark.parametrize(
    "kind", [b'multipart/form-data; boundary="b"', b"Multipart/Form-Data;boundary=b", b"multipart/form-data; charset=utf-8; boundary=b"]
)
def test_a_boundary_may_be_quoted(kind: bytes) -> None:
    assert field(form(part("model", b"m")), kind) == b"m"
