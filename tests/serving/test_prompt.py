"""What policies see of a body: all text of all turns, whatever the shape of the content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.serving.prompt import answered, conversation, prompt_of, raws_of
from gateway.wire.request import read
from policies.values.prompt import Prompt, Turn


def prompt(messages: Any = None, **fields: Any) -> Prompt:
    body = {"model": "auto", **fields} | ({} if messages is None else {"messages": messages})
    read_fields = read(json.dumps(body).encode(), 8)
    return prompt_of(read_fields, raws_of(read_fields), "shop", {"team": "red"})


def test_every_turn_with_text_counts() -> None:
    found = prompt(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Prove it."},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": [{"type": "text", "text": "ok"}, {"type": "text", "text": "do it"}]},
        ],
        max_tokens=50,
    )

    assert found.turns == (Turn("system", "Be brief."), Turn("user", "Prove it."), Turn("assistant", "Done."), Turn("user", "ok\ndo it"))
    assert (found.user_turns, found.max_tokens, found.tool_loop) == (2, 50, False)
    assert (found.tenant, found.tags) == ("shop", {"team": "red"})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, []),
        ("", [""]),
        ([], []),
        (5, []),
        ({"text": "no"}, []),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], []),
        ([{"type": "text", "text": None}], []),
        (["bare", "strings"], ["bare\nstrings"]),
        ([{"type": "text", "text": "said"}, {"type": "input_audio"}], ["said"]),
    ],
)
def test_content_of_any_shape_gives_what_text_there_is(content: Any, text: list[str]) -> None:
    assert [turn.text for turn in prompt([{"role": "user", "content": content}]).turns] == text


def test_what_the_request_needs_is_looked_for_in_its_whole_history() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}, {"type": "text", "text": "what?"}]}
    sound = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
    found = prompt(
        [image, {"role": "assistant", "content": "A cat."}, sound, {"role": "user", "content": "thanks"}],
        tools=[{"type": "function", "function": {"name": "f"}}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        logprobs=True,
    )

    assert (found.images, found.audio, found.tools, found.json_schema, found.logprobs) == (True, True, True, True, True)
    plain = prompt([{"role": "user", "content": "hi"}], tools=[], response_format={"type": "text"}, logprobs=False)
    assert (plain.images, plain.audio, plain.tools, plain.json_schema, plain.logprobs) == (False,) * 5


def test_the_answer_of_a_tool_is_awaited() -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }

    assert prompt([{"role": "user", "content": "go"}, call, {"role": "tool", "tool_call_id": "1", "content": "4"}]).tool_loop
    assert not prompt([{"role": "user", "content": "go"}, call]).tool_loop


def test_a_completion_has_its_prompt() -> None:
    assert prompt(prompt="Once upon").turns == (Turn("user", "Once upon"),)
    assert prompt(prompt=["a", "b"]).turns == (Turn("user", "a\nb"),)
    assert prompt(prompt=[1, 2, 3]).turns == ()
    assert prompt().turns == ()


def test_of_a_long_message_both_ends_are_looked_at_and_all_of_it_is_counted() -> None:
    found = prompt([{"role": "user", "content": "a" * 50_000 + "z" * 50_000}])

    (turn,) = found.turns
    assert turn.text == "a" * 8_192 + "\n" + "z" * 8_192
    assert 25_000 <= found.tokens <= 25_100


def test_bytes_of_an_image_are_no_text() -> None:
    url = "data:image/png;base64," + "A" * 400_000
    found = prompt([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])

    assert found.tokens == 1_000


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    )
)
def test_nothing_breaks_it(messages: Any) -> None:
    assert prompt(messages).tenant == "shop"


def test_a_conversation_is_known_again_by_what_was_sent_before() -> None:
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    second = [*first, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "more"}]
    third = [*second, {"role": "assistant", "content": "More."}, {"role": "user", "content": "thanks"}]
    keys = [conversation("shop", raws(each)) for each in (first, second, third)]

    assert [before for _, before in keys] == [None, keys[0][0], keys[1][0]]
    assert len({key for key, _ in keys}) == 3
    assert conversation("bank", raws(second))[1] != keys[0][0]  # another tenant's


def test_a_tool_loop_is_one_conversation() -> None:
    asked = [{"role": "user", "content": "go"}]
    called = [*asked, {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "1"}]
    again = [*called, {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "2"}]

    assert conversation("", raws(called))[1] == conversation("", raws(asked))[0]
    assert conversation("", raws(again))[1] == conversation("", raws(called))[0]


def raws(messages: Any) -> Any:
    return raws_of(read(json.dumps({"model": "m", "messages": messages}).encode(), 8))


def test_text_beside_a_picture_is_counted_all_of_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    found = prompt(
        [{"role": "user", "content": [picture, {"type": "text", "text": "word " * 20_000}]}, {"role": "user", "content": "b" * 40_000}]
    )

    assert 1_000 + 35_000 <= found.tokens <= 1_000 + 35_100


def test_a_picture_in_the_middle_of_a_long_history_counts() -> None:
    said = [{"role": "user", "content": "hi"}] * 300
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}]}
    sound = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}

    assert prompt([*said, picture, *said]).images and prompt([*said, sound, *said]).audio
    assert prompt([*said, picture, *said]).tokens < 1_000 + 600 * 12
    assert not prompt([*said, {"role": "user", "content": "an image of audio"}, *said]).images


def test_tools_are_a_part_of_the_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 8_000}}]

    assert 2_000 <= prompt([{"role": "user", "content": "hi"}], tools=tools).tokens <= 2_050


def test_letters_written_with_escapes_are_no_longer_than_others() -> None:
    """2,000 letters of 6 bytes are not 3,000 tokens."""
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "я" * 2_000}]})
    assert "\\u044f" in body
    fields = read(body.encode(), 8)

    assert 1_200 <= prompt_of(fields, raws_of(fields), "shop", None).tokens <= 1_300


def test_a_responses_input_is_read_as_a_chat_is() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}, {"type": "input_image", "image_url": "https://x/y.png"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "4"},
    ]
    found = prompt(input=items, instructions="Be brief.", max_output_tokens=30)
    assert found.turns == (Turn("system", "Be brief."), Turn("user", "go"))
    assert (found.images, found.tool_loop, found.max_tokens, found.user_turns) == (True, True, 30, 1)
    assert prompt(input="Once upon").turns == (Turn("user", "Once upon"),)
    assert prompt(input=["a", "b"]).turns == (Turn("user", "a\nb"),)
    assert 2_500 <= prompt(input="a" * 10_000).tokens <= 2_510

    first = raws_of(read(json.dumps({"model": "m", "input": items[:1]}).encode(), 8))
    assert conversation("", raws_of(read(json.dumps({"model": "m", "input": items}).encode(), 8)))[1] == conversation("", first)[0]


def test_a_messages_body_is_read_as_a_chat_is() -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "4"}, {"type": "image", "source": {}}]}
    found = prompt(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {"role": "user", "content": [result]},
        ],
        system=[{"type": "text", "text": "Be brief."}],
    )

    assert found.turns == (Turn("system", "Be brief."), Turn("user", "go"), Turn("tool", "4"))
    assert (found.tool_loop, found.images, found.user_turns) == (True, True, 1)
    assert 2_500 <= prompt([{"role": "user", "content": "hi"}], system="s" * 10_000).tokens <= 2_520


@pytest.mark.parametrize("body", ['{"model":"m","prompt":[1e999]}', '{"model":"m","messages":[{"role":"user","content":[1e999,"x"]}]}'])
def test_a_number_beyond_all_bounds_is_no_text(body: str) -> None:
    fields = read(body.encode(), 8)

    assert prompt_of(fields, raws_of(fields), "shop", None).turns == ()


def test_whether_the_model_has_had_a_turn() -> None:
    user, model = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}

    assert [answered(raws(each)) for each in ([], [user], [user, user], [user, model], [user, model, user])] == [
        False,
        False,
        False,
        True,
        True,
    ]
