from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gateway.wire.errors import ApiError
from gateway.wire.request import Fields, json_object, members, read, rewrite, with_members
from tests.wire.json_text import Pairs, spelt, top_members

FUZZ = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
CANARY = "canary-7f3a"

# Keys and texts that look like the places that are changed.
decoys = st.sampled_from(
    ["model", "stream", "stream_options", "trilemma", "include_usage", 'a"model', "model\\", '"model": "x"', "é漢🙂", "x", ""]
)
texts = st.one_of(decoys, st.text(max_size=5))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3), st.fixed_dictionaries({"model": texts})
    ),
    max_leaves=6,
)
others = st.dictionaries(texts.filter(lambda key: key not in Fields.__struct_fields__), values, max_size=3)
stream_options = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"include_usage": st.sampled_from([None, True, False]), "x": values})
)


@st.composite
def objects(draw: st.DrawFn, **known: st.SearchStrategy[Any]) -> dict[str, Any]:
    """A request that names a model, with its members in any order."""
    members = draw(others) | {"model": draw(texts.filter(bool))}
    for key, value in known.items():
        if draw(st.booleans()):
            members[key] = draw(value)
    return dict(draw(st.permutations(list(members.items()))))


@st.composite
def bodies(draw: st.DrawFn, value: Any) -> bytes:
    return (draw(st.text(" \t\r\n", max_size=2)) + draw(spelt(value)) + draw(st.text(" \t\r\n", max_size=2))).encode()


def refused(body: bytes, max_n: int = 128) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(body, max_n)
    return caught.value


# -- reading


@FUZZ
@given(body=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), values.map(json.dumps).map(str.encode)))
@example(body=b"")
@example(body=b'{"model": "m", "x": NaN}')
@example(body=b'\xef\xbb\xbf{"model": "m"}')
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read(body, 128)
    except ApiError as error:
        assert error.status == 400
        json.loads(error.body())
    else:
        assert isinstance(json.loads(body), dict)


@FUZZ
@given(data=st.data())
def test_a_damaged_body_is_refused_or_still_json(data: st.DataObject) -> None:
    body = bytearray(data.draw(objects(stream=st.booleans(), n=st.integers(1, 3)).flatmap(bodies)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["drop", "insert", "replace", "cut", "swap"])):
            case "drop":
                del body[at]
            case "insert":
                body.insert(at, data.draw(st.sampled_from(b'{}[]",:\\u0 1e-.tn\x00\xff\n')))
            case "replace":
                body[at] = data.draw(st.integers(0, 255))
            case "cut":
                del body[at + 1 :]
            case _:
                body[at], body[-1] = body[-1], body[at]
        assume(body)
    try:
        fields = read(bytes(body), 128)
    except ApiError as error:
        assert error.status == 400
    else:
        expected = json.loads(bytes(body))
        assert fields.model == expected.get("model")
        assert fields.stream == expected.get("stream")
        assert fields.n == expected.get("n")


@FUZZ
@given(data=st.data())
def test_what_is_read_is_what_json_says(data: st.DataObject) -> None:
    value = data.draw(
        objects(
            stream=st.sampled_from([None, True, False]),
            stream_options=stream_options,
            n=st.sampled_from([None, 1, 2.0, 128]),
            max_tokens=st.sampled_from([None, -1, 0, 5, 2**31 - 1]),
            max_completion_tokens=st.sampled_from([None, 5]),
            trilemma=values,
        )
    )

    fields = read(data.draw(bodies(value)), 128)

    for name in ("model", "stream", "n", "max_tokens", "max_completion_tokens"):
        assert getattr(fields, name) == value.get(name)
    asked = value.get("stream_options")
    assert (fields.stream_options is None) == (asked is None)
    assert fields.stream_options is None or fields.stream_options.include_usage == asked.get("include_usage")
    raw = bytes(fields.trilemma)
    assert json.loads(raw) == value["trilemma"] if "trilemma" in value else not raw


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[]",
        b"null",
        b"1",
        b'"model"',
        b'{"model":1}',
        b'{"model":["m"]}',
        b'{"model":"m","x":NaN}',
        b'{"model":"m","x":Infinity}',
        b'{"model":"m","x":-Infinity}',
        b'{"model":"m","n":NaN}',
        b'{"model":"m","x":01}',
        b'{"model":"m","x":1.}',
        b'{"model":"m","x":.5}',
        b'{"model":"m","x":"\n"}',
        b'{"model":"m","x":"\\x"}',
        b'{"model":"m","x":"\\ud800"}',
        b'{"model":"m","\\ud800":1}',
        b'{"model":"\\udc00"}',
        b'{"model":"m","x":tru}',
        b'{"model":"m",}',
        b'{"model":"m"} x',
        b'{"model":"m"}{"model":"m"}',
        b"{'model':'m'}",
        b'{"model":"m"}\x00',
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"m","x":"\xff"}',
        b'{"model":"m","x":"\xed\xa0\x80"}',
        '{"model":"m"}'.encode("utf-16"),
        b'{"model":"m","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"model":"m","x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    ],
)
def test_what_no_engine_could_read_is_a_bad_request(body: bytes) -> None:
    error = refused(body)

    assert error.status == 400
    assert json.loads(error.body())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("depth", [100, 900, 1_000, 1_100, 100_000])
def test_nesting_is_read_or_refused_and_never_a_crash(depth: int) -> None:
    body = b'{"model":"m","x":' + b"[" * depth + b"]" * depth + b',"trilemma":{},"a":{"model":1}}'
    try:
        fields = read(body, 128)
    except ApiError as error:
        assert depth > 900
        assert error.code == "caller_invalid_json"
    else:
        assert rewrite(body, fields, model="w") == body.replace(b'"m"', b'"w"').replace(b'"trilemma":{},', b"")


@pytest.mark.parametrize(
    ("member", "param"),
    [
        ('"model": 5', "model"),
        ('"stream": "yes"', "stream"),
        ('"stream": 1', "stream"),
        ('"stream_options": true', "stream_options"),
        ('"stream_options": {"include_usage": "yes"}', "stream_options.include_usage"),
        ('"n": "2"', "n"),
        ('"n": true', "n"),
        ('"n": 0', "n"),
        ('"n": -1', "n"),
        ('"n": 1.5', "n"),
        ('"n": 129', "n"),
        ('"n": 1e400', "n"),
        ('"n": 1' + "0" * 400, "n"),
        ('"max_tokens": -2', "max_tokens"),
        ('"max_tokens": 2147483648', "max_tokens"),
        ('"max_completion_tokens": 0.5', "max_completion_tokens"),
        ('"max_completion_tokens": [1]', "max_completion_tokens"),
    ],
)
def test_a_wrong_value_is_named(member: str, param: str) -> None:
    error = refused(f'{{"messages": "{CANARY}", {member}}}'.encode())

    assert (error.status, error.code, error.param) == (400, "caller_invalid_value", param)
    assert CANARY not in error.body().decode()


@pytest.mark.parametrize(
    "body",
    [
        f'{{"model": "m", "{CANARY}": }}',
        f'{{"{CANARY}": 1, "model": 5}}',
        f'{{"model": ["{CANARY}"]}}',
        f'{{"n": "{CANARY}"}}',
        f'{{"stream_options": {{"include_usage": "{CANARY}"}}}}',
        f'{{"{CANARY}": 1, "{CANARY}": 2, "model": "{CANARY}", "model": "{CANARY}"}}',
        f'["{CANARY}"]',
        f'"{CANARY}',
        CANARY,
    ],
)
def test_no_refusal_repeats_the_body(body: str) -> None:
    error = refused(body.encode())

    assert CANARY not in error.body().decode() + str(error) + repr(error)


@FUZZ
@given(data=st.data(), key=st.sampled_from(["model", "stream", "trilemma"]))
def test_a_key_that_decides_may_stand_once(data: st.DataObject, key: str) -> None:
    value = {"model": "m", "stream": True, "trilemma": {}} | data.draw(st.sampled_from([{}, {"a": {"model": 1}}]))
    items = data.draw(st.permutations([*value.items(), (key, value[key])]))

    error = refused(data.draw(bodies(Pairs(items))))

    assert (error.code, error.param) == ("caller_invalid_json", key)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"model": "m", "model": "m"}', "model"),
        ('{"model": "m", "stream": true, "stream": false}', "stream"),
        ('{"trilemma": {}, "model": "m", "trilemma": null}', "trilemma"),
        ('{"model": "m", "mod\\u0065l": "n"}', "model"),
        ('{"model": "m", "\\u006Dodel": "n"}', "model"),
        ('{"model": "m", "trilemma": {}, "\\u0074rilemma": {}}', "trilemma"),
        ('{"model": "m", "max_tokens": 1, "max\\u005Ftokens": 2}', "max_tokens"),
        ('{"model": "m", "other": 1, "oth\\u0065r": 2}', None),
    ],
)
def test_no_spelling_hides_a_second_key(body: str, param: str | None) -> None:
    error = refused(body.encode())

    assert (error.code, error.param) == ("caller_invalid_json", param)


def test_keys_that_only_look_like_it_may_stand_often() -> None:
    body = b'{"model":"m","a":{"model":1,"stream":2},"b":["model","trilemma"],"c":"\\"model\\":","tools":[{"model":1}],"d":"\\u006d"}'

    assert read(body, 128).model == "m"


def test_a_body_made_to_be_slow_is_refused() -> None:
    """A decoy sends these through a walk over the whole body."""
    decoy = b',"a":{"model":1}}'
    keys = b'{"model":"m"' + b"".join(b',"k%d":1' % i for i in range(2_000)) + decoy
    brackets = b'{"model":"m","x":[' + b"[]," * 600_000 + b"1]" + decoy
    escapes = b'{"model":"m","x":"' + b"\\n" * 2_000_000 + b'"' + decoy

    assert refused(keys).code == "caller_invalid_value"
    assert refused(brackets).code == "caller_invalid_value"
    assert read(escapes, 128).model == "m"


# -- changing


@FUZZ
@given(data=st.data())
def test_members_are_found_where_a_plain_parser_finds_them(data: st.DataObject) -> None:
    body = data.draw(bodies(data.draw(objects())))

    assert [(m.key, m.start, m.value, m.end) for m in members(body)] == top_members(body)


@FUZZ
@given(data=st.data(), model=st.one_of(st.none(), texts), ask_usage=st.booleans())
def test_a_rewrite_changes_the_named_places_and_nothing_else(data: st.DataObject, model: str | None, ask_usage: bool) -> None:
    value = data.draw(objects(stream=st.booleans(), stream_options=stream_options, trilemma=values))
    body = data.draw(bodies(value))

    changed = rewrite(body, read(body, 128), model=model, ask_usage=ask_usage)

    wanted = {key: each for key, each in value.items() if key != "trilemma"}
    if model is not None:
        wanted["model"] = model
    if ask_usage:
        wanted["stream_options"] = (value.get("stream_options") or {}) | {"include_usage": True}
    assert json.loads(changed) == wanted
    assert changed == by_hand(body, model, ask_usage)


def by_hand(body: bytes, model: str | None, ask_usage: bool) -> bytes:
    """The same by another way: from the end to the front, over spans that the plain parser found."""
    found = top_members(body)
    changed = body
    for index in reversed(range(len(found))):
        key, start, value, end = found[index]
        if key == "model" and model is not None:
            changed = changed[:value] + json.dumps(model, ensure_ascii=False).encode() + changed[end:]
        elif key == "stream_options" and ask_usage:
            inside = body[value:end]
            kept = [inside[s:e] for k, s, _, e in top_members(inside) if k != "include_usage"] if inside[:1] == b"{" else []
            changed = changed[:value] + b"{" + b",".join([*kept, b'"include_usage":true']) + b"}" + changed[end:]
        elif key == "trilemma" and index + 1 < len(found):
            changed = changed[:start] + changed[found[index + 1][1] :]
        elif key == "trilemma":
            changed = changed[: found[index - 1][3] if index else start] + changed[end:]
    if ask_usage and all(key != "stream_options" for key, *_ in found):
        at = changed.index(b"{") + 1
        changed = changed[:at] + b'"stream_options":{"include_usage":true},' + changed[at:]
    return changed


@pytest.mark.parametrize(
    ("body", "model", "ask_usage", "changed"),
    [
        ('{"model": "m" , "x":1 }', None, False, '{"model": "m" , "x":1 }'),
        ('{ "model" : "m", "x": 1.0 }', "w", False, '{ "model" : "w", "x": 1.0 }'),
        ('{"trilemma": {"a": 1}, "model": "m"}', None, False, '{"model": "m"}'),
        ('{"x": 1, "trilemma": null , "model": "m"}', None, False, '{"x": 1, "model": "m"}'),
        ('{"model": "m" , "trilemma": [1, {"model": 2}] }', "w", False, '{"model": "w" }'),
        ('{"model": "m", "stream_options": null}', None, True, '{"model": "m", "stream_options": {"include_usage":true}}'),
        (
            '{"stream_options": {"include_usage": false, "x": [1, 2]}, "model": "m"}',
            None,
            True,
            '{"stream_options": {"x": [1, 2],"include_usage":true}, "model": "m"}',
        ),
        (
            '{"a": {"stream_options": {}}, "model": "m"}',
            None,
            True,
            '{"stream_options":{"include_usage":true},"a": {"stream_options": {}}, "model": "m"}',
        ),
        ('{"a": {"model": "m"}, "model": "m"}', "w", False, '{"a": {"model": "m"}, "model": "w"}'),
        ('{"a": {"model": "m"}, "\\u006dodel": "m"}', "w", False, '{"a": {"model": "m"}, "\\u006dodel": "w"}'),
        ('{"say \\"model": "m", "mode\\u006C": "m"}', "w", False, '{"say \\"model": "m", "mode\\u006C": "w"}'),
        (
            '{"model": "m", "stream_option\\u0073": null}',
            None,
            True,
            '{"model": "m", "stream_option\\u0073": {"include_usage":true}}',
        ),
        ('{"model": "m"}', 'ü/"x"', False, '{"model": "ü/\\"x\\""}'),
    ],
)
def test_rewrites_by_example(body: str, model: str | None, ask_usage: bool, changed: str) -> None:
    raw = body.encode()

    assert rewrite(raw, read(raw, 128), model=model, ask_usage=ask_usage).decode() == changed


@FUZZ
@given(raw=st.one_of(st.binary(max_size=20), values.map(json.dumps).map(str.encode)))
def test_an_object_or_nothing(raw: bytes) -> None:
    found = json_object(raw)
    if found is not None:
        assert found == json.loads(raw, parse_int=lambda digits: int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits))


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ('{"model":"m"}', '{"a":1,"b":{"c":2},"model":"m"}'),
        ("{ }", '{"a":1,"b":{"c":2} }'),
        ('{"b": [9, {"a": 8}], "x":"\\"a\\""}', '{"a":1,"b": {"c":2}, "x":"\\"a\\""}'),
        ('{"a":{"b":3},"b":null}', '{"a":1,"b":{"c":2}}'),
    ],
)
def test_members_replace_what_stands_under_their_names_or_come_first(body: str, changed: str) -> None:
    assert with_members(body.encode(), {"a": b"1", "b": b'{"c":2}'}).decode() == changed


@settings(deadline=None)
@given(
    body=st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=2), max_size=6),
    changes=st.dictionaries(st.text(max_size=4), st.integers(), max_size=4),
)
def test_changed_members_are_what_json_says(body: dict[str, Any], changes: dict[str, int]) -> None:
    changed = with_members(json.dumps(body).encode(), {name: b"%d" % value for name, value in changes.items()})

    assert json.loads(changed) == body | changes


def test_a_member_that_is_named_twice_is_changed_twice() -> None:
    """Engines take the last."""
    assert with_members(b'{"a":5, "a":100, "\\u0061":7}', {"a": b"4"}) == b'{"a":4, "a":4, "\\u0061":4}'
