"""What the adapters read in, and put to, real engines: against recorded answers, with values read off them by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.engines.base import Adapter, Call, Json, TokenLogprob, UnexpectedAnswerError, UnsupportedError, run
from gateway.engines.registry import adapter

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
VLLM, LLAMACPP, OPENAI = adapter("vllm"), adapter("llama.cpp"), adapter("openai")
ALL = pytest.mark.parametrize("engine", [VLLM, LLAMACPP, OPENAI], ids=lambda engine: engine.name)


def sample(folder: str, name: str) -> tuple[Json, int, Json]:
    """Request body, status and parsed answer of a recorded exchange that is no stream."""
    about = json.loads((SAMPLES / folder / f"{name}.json").read_text())
    answer = about.get("response")
    if answer is None:
        answer = json.loads((SAMPLES / folder / f"{name}.txt").read_bytes())
    return about["request"]["body"], about["status"], answer


def deltas(folder: str, name: str) -> str:
    """The content of a recorded chat stream, joined."""
    lines = (SAMPLES / folder / f"{name}.txt").read_text().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


class Recorded:
    """Sends nothing: keeps the calls and gives the answers it was made with, in order."""

    def __init__(self, *answers: Json) -> None:
        self.calls: list[Call] = []
        self._answers = iter(answers)

    async def __call__(self, call: Call) -> Json:
        self.calls.append(call)
        return next(self._answers)


class TestRegistry:
    @ALL
    def test_an_adapter_has_the_name_it_is_asked_by(self, engine: Adapter) -> None:
        assert adapter(engine.name).name == engine.name

    def test_an_unknown_engine_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(ValueError, match=r"'tgi'.*vllm, llama.cpp, openai"):
            adapter("tgi")


class TestContinuing:
    def test_vllm_needs_both_flags_and_answers_with_the_new_text_only(self) -> None:
        recorded, status, answer = sample("vllm", "chat_continue_final_message")
        question = {k: v for k, v in recorded.items() if k not in ("continue_final_message", "add_generation_prompt")}
        question["messages"] = recorded["messages"][:1]

        request = VLLM.continue_final(question, "The sum of 7 and 5 is")

        assert (request, status) == (recorded, 200)
        assert VLLM.continued_text(request, answer["choices"][0]["message"]["content"]) == " 12."

    def test_vllm_streams_the_new_text_only(self) -> None:
        request, _, _ = sample("vllm", "chat_continue_final_message")
        assert deltas("vllm", "x_chat_continue_stream").startswith(" ")
        assert VLLM.continued_text(request, deltas("vllm", "x_chat_continue_stream"), streamed=True).startswith(" ")

    def test_llamacpp_repeats_the_prefix_in_a_whole_answer(self) -> None:
        recorded, _, answer = sample("llamacpp", "continue")
        question = {**recorded, "messages": recorded["messages"][:1]}

        request = LLAMACPP.continue_final(question, "The sum of 7 and 5 is")

        assert request == recorded
        content = answer["choices"][0]["message"]["content"]
        assert content == "The sum of 7 and 5 is 12."
        assert LLAMACPP.continued_text(request, content) == " 12."

    def test_llamacpp_does_not_repeat_it_in_a_stream(self) -> None:
        request, _, _ = sample("llamacpp", "continue")
        assert deltas("llamacpp", "continue_stream") == " 12."
        assert LLAMACPP.continued_text(request, " 12.", streamed=True) == " 12."

    def test_llamacpp_lengthens_an_answer_that_is_under_way_for_it_refuses_two(self) -> None:
        _, status, _ = sample("llamacpp", "two_assistants")
        assert status == 400
        begun = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1, 2,"}]

        request = LLAMACPP.continue_final({"messages": begun}, " 3,")

        assert request["messages"] == [begun[0], {"role": "assistant", "content": "1, 2, 3,"}]
        assert LLAMACPP.continued_text(request, "1, 2, 3, 4, 5") == " 4, 5"

    def test_vllm_lengthens_only_what_the_client_asked_to_continue(self) -> None:
        begun = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1, 2,"}]
        flags = {"continue_final_message": True, "add_generation_prompt": False}

        asked = VLLM.continue_final({"messages": begun, **flags}, " 3,")
        not_asked = VLLM.continue_final({"messages": begun}, " 3,")

        assert asked == {"messages": [begun[0], {"role": "assistant", "content": "1, 2, 3,"}], **flags}
        assert not_asked == {"messages": [*begun, {"role": "assistant", "content": " 3,"}], **flags}

    def test_vllm_is_not_asked_to_echo_for_then_the_prefix_would_come_back(self) -> None:
        recorded, _, answer = sample("vllm", "chat_continue_echo")
        assert answer["choices"][0]["message"]["content"].startswith(recorded["messages"][-1]["content"])
        assert "echo" not in VLLM.continue_final({"messages": recorded["messages"][:1], "echo": True}, "The sum")

    def test_text_parts_are_continued_as_one_string(self) -> None:
        parts = [{"type": "text", "text": "1, 2,"}, {"type": "text", "text": "3,"}]
        messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": parts}]

        request = LLAMACPP.continue_final({"messages": messages}, " 4,")

        assert request["messages"][-1]["content"] == "1, 2,\n3, 4,"
        with pytest.raises(UnsupportedError, match="more than text"):
            LLAMACPP.continue_final({"messages": [{"role": "assistant", "content": [{"type": "image_url"}]}]}, "x")

    @pytest.mark.parametrize("prefix", ["Step 1:\n\n", "x = ", "\t", " ", "Count."])
    def test_white_space_at_the_end_stays(self, prefix: str) -> None:
        body = {"messages": [{"role": "user", "content": "Count."}]}
        for engine in (VLLM, LLAMACPP):
            assert engine.continue_final(body, prefix)["messages"][-1] == {"role": "assistant", "content": prefix}
        request = LLAMACPP.continue_final(body, prefix)
        assert LLAMACPP.continued_text(request, prefix + " 1\n") == " 1\n"

    def test_an_altered_prefix_is_an_error_and_no_guess(self) -> None:
        request = LLAMACPP.continue_final({"messages": []}, "Step 1:\n\n")
        with pytest.raises(UnexpectedAnswerError):
            LLAMACPP.continued_text(request, "Step 1: add")

    def test_an_empty_prefix_changes_nothing(self) -> None:
        body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 3}
        for engine in (VLLM, LLAMACPP):
            request = engine.continue_final(body, "")
            assert request == body
            assert engine.continued_text(request, "1, 2") == "1, 2"

    def test_the_request_given_is_not_changed(self) -> None:
        body = {"messages": [{"role": "assistant", "content": "1"}], "continue_final_message": True, "echo": True}
        before = copy.deepcopy(body)
        for engine in (VLLM, LLAMACPP):
            engine.continue_final(body, " 2")
        assert body == before

    def test_a_generic_server_cannot(self) -> None:
        assert not OPENAI.capabilities.continue_prefix
        with pytest.raises(UnsupportedError):
            OPENAI.continue_final({"messages": []}, "x")
        with pytest.raises(UnsupportedError):
            OPENAI.continued_text({"messages": []}, "x")


class TestTokenLogprobs:
    def test_chat_of_vllm(self) -> None:
        _, _, answer = sample("vllm", "chat_logprobs")
        scored = VLLM.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert [one.token for one in scored] == ["7", " +", " ", "5", " ="]
        assert scored[0].logprob == -1.8419978618621826
        assert (scored[0].id, scored[0].bytes) == (None, b"7")
        assert [(one.token, one.logprob) for one in scored[0].top] == [
            ("7", -1.8419978618621826),
            ("The", -1.9669978618621826),
            ("A", -2.2169978618621826),
        ]

    def test_chat_of_llamacpp_has_ids(self) -> None:
        _, _, answer = sample("llamacpp", "chat_logprobs")
        scored = LLAMACPP.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert scored[:2] == [
            TokenLogprob("The", -1.836567997932434, 504, b"The", scored[0].top),
            TokenLogprob(" answer", -0.6877006888389587, 2988, b" answer", scored[1].top),
        ]
        assert [one.id for one in scored[0].top] == [504, 39, 49]

    def test_completions_of_vllm_are_of_the_legacy_shape(self) -> None:
        _, _, answer = sample("vllm", "compl_logprobs")
        scored = VLLM.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert [(one.token, one.logprob) for one in scored] == [
            (" Rome", -0.41872498393058777),
            (".", -0.22089961171150208),
            (" The", -1.5326250791549683),
            (" capital", -0.0791478380560875),
        ]
        assert [(one.token, one.logprob) for one in scored[0].top] == [
            (" Rome", -0.41872498393058777),
            (" Florence", -2.85622501373291),
            (" Italy", -3.10622501373291),
        ]

    def test_completions_of_llamacpp_are_of_the_chat_shape(self) -> None:
        _, _, answer = sample("llamacpp", "compl_logprobs")
        scored = LLAMACPP.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert [one.id for one in scored] == [7268, 30, 378, 3575]
        assert scored[0].logprob == -0.4653151333332062

    def test_tokens_written_as_ids(self) -> None:
        _, _, answer = sample("vllm", "x_chat_return_tokens_as_ids")
        scored = VLLM.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert (scored[0].token, scored[0].id, scored[0].bytes) == ("token_id:39", 39, b"7")

    def test_a_first_token_without_score_is_none_and_never_zero(self) -> None:
        _, _, answer = sample("vllm", "compl_echo_logprobs_max0")
        scored = VLLM.token_logprobs(answer["choices"][0])
        assert scored is not None
        assert (scored[0].token, scored[0].logprob, scored[0].top) == ("The", None, ())
        assert scored[1].logprob == -11.70806884765625
        assert len(scored) == 12

    def test_ids_beside_the_tokens_are_joined_to_them(self) -> None:
        logprobs = {"tokens": ["a", "b"], "token_logprobs": [-0.5, None], "top_logprobs": None}
        assert VLLM.token_logprobs({"logprobs": logprobs, "token_ids": [7, 8]}) == [
            TokenLogprob("a", -0.5, 7),
            TokenLogprob("b", None, 8),
        ]
        # More ids than tokens (a stop token that is not shown, say): no telling which belong together.
        assert VLLM.token_logprobs({"logprobs": logprobs, "token_ids": [7, 8, 9]}) == [
            TokenLogprob("a", -0.5),
            TokenLogprob("b", None),
        ]

    def test_each_chunk_of_a_stream(self) -> None:
        lines = (SAMPLES / "vllm" / "chat_stream_logprobs.txt").read_text().splitlines()
        choices = [c for line in lines if line.startswith("data: {") for c in json.loads(line[6:])["choices"]]
        read = [VLLM.token_logprobs(choice) for choice in choices]
        assert read[0] is None
        assert [one.token for scored in read if scored for one in scored][:3] == ["7", " +", " "]

    @pytest.mark.parametrize("choice", [{}, {"logprobs": None}, {"logprobs": {}}, {"logprobs": {"content": None}}])
    def test_a_choice_without_scores(self, choice: Json) -> None:
        assert OPENAI.token_logprobs(choice) is None

    @pytest.mark.parametrize(
        "logprobs",
        [
            3,
            {"content": {}},
            {"content": [3]},
            {"content": [{"logprob": -1}]},
            {"content": [{"token": "a", "bytes": [300]}]},
            {"tokens": ["a"], "token_logprobs": []},
            {"tokens": ["a"], "token_logprobs": None},
        ],
    )
    def test_an_unknown_shape_is_an_error(self, logprobs: Any) -> None:
        with pytest.raises(UnexpectedAnswerError):
            OPENAI.token_logprobs({"logprobs": logprobs})


class TestSamples:
    @pytest.mark.parametrize(
        ("engine", "n", "slots", "expected"),
        [
            (VLLM, 100, None, [100]),
            (OPENAI, 5, None, [5]),
            (LLAMACPP, 4, 4, [4]),
            (LLAMACPP, 10, 4, [4, 4, 2]),
            (LLAMACPP, 3, None, [1, 1, 1]),
            (LLAMACPP, 0, 4, []),
            (VLLM, 0, None, []),
        ],
        ids=lambda value: getattr(value, "name", str(value)),
    )
    def test_how_n_is_put(self, engine: Adapter, n: int, slots: int | None, expected: list[int]) -> None:
        assert engine.split_n(n, slots) == expected

    def test_llamacpp_refuses_more_than_its_slots(self) -> None:
        _, status, answer = sample("llamacpp", "n_over_slots")
        assert (status, answer["error"]["message"]) == (
            400,
            "Field 'n': Value must be between 1 <= value <= 4, but got 5",
        )
        assert LLAMACPP.capabilities.n_within_slots

    def test_whose_usage_counts_all_choices(self) -> None:
        _, _, of_llamacpp = sample("llamacpp", "n3")  # three choices, each cut at 5 tokens
        _, _, of_vllm = sample("vllm", "chat_n4")
        assert (of_llamacpp["usage"]["completion_tokens"], LLAMACPP.capabilities.usage_counts_all_choices) == (5, False)
        assert (of_vllm["usage"]["completion_tokens"], VLLM.capabilities.usage_counts_all_choices) == (58, True)


SCORED = [504, 3575, 282, 7158, 314, 7268]  # The capital of Italy is Rome


class TestScoring:
    async def test_vllm_scores_a_prompt_in_one_call(self) -> None:
        recorded, _, answer = sample("vllm", "x_compl_score_token_ids_echo")
        send = Recorded(answer)

        scores = await run(VLLM.score("smollm2-135m", SCORED), send)

        assert send.calls == [Call("/v1/completions", recorded)]
        assert scores == [
            None,
            -11.70806884765625,
            -0.33559009432792664,
            -4.540597915649414,
            -0.4827011823654175,
            -1.0020519495010376,
        ]

    async def test_only_from_start_on(self) -> None:
        _, _, answer = sample("vllm", "x_compl_score_token_ids_echo")
        scores = await run(VLLM.score("smollm2-135m", SCORED, start=5), Recorded(answer))
        assert scores == [None, None, None, None, None, -1.0020519495010376]

    async def test_llamacpp_makes_each_token_certain_and_reads_its_own_score(self) -> None:
        recorded, _, rome = sample("llamacpp", "score_token")
        end_request, _, end = sample("llamacpp", "score_end_token")
        send = Recorded(rome, end)

        scores = await run(LLAMACPP.score("smollm2-135m", [*SCORED, 2], start=5), send)

        assert send.calls == [Call("/v1/completions", recorded), Call("/v1/completions", end_request)]
        assert scores == [None, None, None, None, None, -0.9682108759880066, -18.198543548583984]

    def test_llamacpp_is_asked_for_every_token_but_the_first(self) -> None:
        calls = next(LLAMACPP.score("smollm2-135m", SCORED))
        asked = [(call.body["prompt"], call.body["logit_bias"]) for call in calls]
        assert asked == [(SCORED[:i], [[SCORED[i], 1000.0]]) for i in (1, 2, 3, 4, 5)]

    async def test_llamacpp_does_not_report_a_token_that_ends_within_a_character_so_it_is_looked_up(self) -> None:
        forced, _, silent = sample("llamacpp", "score_part_of_character")
        listed, _, listing = sample("llamacpp", "score_listed")
        assert silent["choices"][0]["logprobs"] is None
        send = Recorded(silent, listing)

        scores = await run(LLAMACPP.score("smollm2-135m", [30158, 241, 16736], start=2), send)

        assert send.calls == [Call("/v1/completions", forced), Call("/v1/completions", listed)]
        assert scores == [None, None, -5.651954174041748]

    async def test_llamacpp_lists_every_token_when_the_likeliest_do_not_hold_it(self) -> None:
        _, _, silent = sample("llamacpp", "score_part_of_character")
        _, _, listing = sample("llamacpp", "score_listed")
        every = copy.deepcopy(listing)
        every["choices"][0]["logprobs"]["content"][0]["top_logprobs"].append(
            {"id": 49000, "token": "", "bytes": [228, 186], "logprob": -21.5}
        )
        send = Recorded(silent, listing, every)

        scores = await run(LLAMACPP.score("smollm2-135m", [30158, 241, 49000], start=2), send)

        assert [call.body["logprobs"] for call in send.calls] == [1, 300, 1_000_000]
        assert scores == [None, None, -21.5]
        with pytest.raises(UnexpectedAnswerError, match="within a character"):
            await run(LLAMACPP.score("m", [30158, 241, 49000], start=2), Recorded(silent, listing, listing))

    async def test_scores_of_other_tokens_are_refused(self) -> None:
        _, _, of_vllm = sample("vllm", "x_compl_score_token_ids_echo")
        with pytest.raises(UnexpectedAnswerError):
            await run(VLLM.score("smollm2-135m", [*SCORED[:-1], 7042]), Recorded(of_vllm))
        _, _, of_llamacpp = sample("llamacpp", "score_token")
        with pytest.raises(UnexpectedAnswerError):
            await run(LLAMACPP.score("smollm2-135m", [*SCORED[:-1], 7042], start=5), Recorded(of_llamacpp))

    async def test_an_engine_that_ignores_what_scoring_needs_is_found_out(self) -> None:
        # llama.cpp, asked as if it were vLLM, ignores echo and scores what it wrote itself.
        _, _, answer = sample("llamacpp", "compl_echo_logprobs_max0")
        with pytest.raises(UnexpectedAnswerError):
            await run(VLLM.score("smollm2-135m", SCORED), Recorded(answer))
        with pytest.raises(UnexpectedAnswerError):
            await run(LLAMACPP.score("smollm2-135m", SCORED, start=5), Recorded({"choices": []}))

    @pytest.mark.parametrize("engine", [VLLM, LLAMACPP], ids=lambda engine: engine.name)
    @pytest.mark.parametrize(("tokens", "start"), [([], 1), ([504], 1), ([504], 0), ([504, 3575], 2)])
    async def test_nothing_to_score_asks_nothing(self, engine: Adapter, tokens: list[int], start: int) -> None:
        send = Recorded()
        assert await run(engine.score("smollm2-135m", tokens, start), send) == [None] * len(tokens)
        assert send.calls == []

    def test_a_generic_server_scores_nothing(self) -> None:
        assert not OPENAI.capabilities.scoring
        with pytest.raises(UnsupportedError):
            OPENAI.score("gpt", [1, 2])
        with pytest.raises(UnsupportedError):
            OPENAI.tokenize("gpt", "text")


class TestTokenizing:
    TEXT = "The capital of France is Paris. The capital of Italy is"
    IDS = (504, 3575, 282, 4649, 314, 7042, 30, 378, 3575, 282, 7158, 314)

    async def test_a_text(self) -> None:
        _, _, of_vllm = sample("vllm", "tokenize_prompt")
        _, _, of_llamacpp = sample("llamacpp", "tokenize_prompt")
        send, other = Recorded(of_vllm), Recorded(of_llamacpp)

        assert await run(VLLM.tokenize("smollm2-135m", self.TEXT), send) == list(self.IDS)
        assert await run(LLAMACPP.tokenize("smollm2-135m", self.TEXT, special=False), other) == list(self.IDS)

        asked = {"model": "smollm2-135m", "prompt": self.TEXT, "add_special_tokens": True}
        assert send.calls == [Call("/tokenize", asked)]
        asked = {"content": self.TEXT, "add_special": False, "parse_special": True}
        assert other.calls == [Call("/tokenize", asked)]

    async def test_a_chat_with_vllm(self) -> None:
        recorded, _, answer = sample("vllm", "tokenize_chat")
        send = Recorded(answer)
        body = {**recorded, "max_tokens": 5, "temperature": 0.5}

        tokens = await run(VLLM.tokenize("smollm2-135m", body), send)

        assert send.calls == [Call("/tokenize", recorded)]
        assert (len(tokens), tokens[:2], tokens[-2:]) == (53, [1, 9690], [37, 314])

    async def test_a_chat_with_llamacpp_is_rendered_first(self) -> None:
        recorded, _, rendered = sample("llamacpp", "apply_template")
        send = Recorded(rendered, {"tokens": [1, 9690]})

        tokens = await run(LLAMACPP.tokenize("smollm2-135m", {**recorded, "max_tokens": 5}), send)

        text = {"content": rendered["prompt"], "add_special": True, "parse_special": True}
        assert send.calls == [Call("/apply-template", recorded), Call("/tokenize", text)]
        assert rendered["prompt"].endswith("<|im_start|>assistant\nThe sum of 7 and 5 is")
        assert tokens == [1, 9690]

    @pytest.mark.parametrize("answer", [{}, {"tokens": None}, {"tokens": [{"id": 1, "piece": "a"}]}])
    async def test_an_answer_without_ids_is_an_error(self, answer: Json) -> None:
        for engine in (VLLM, LLAMACPP):
            with pytest.raises(UnexpectedAnswerError):
                await run(engine.tokenize("smollm2-135m", "a"), Recorded(answer))


class TestModels:
    def test_vllm_tells_the_context(self) -> None:
        _, _, answer = sample("vllm", "models")
        (model,) = VLLM.models(answer)
        assert (model.id, model.max_model_len, model.raw["owned_by"]) == ("smollm2-135m", 2048, "vllm")

    def test_llamacpp_tells_what_a_slot_holds_not_what_the_model_was_made_for(self) -> None:
        _, _, answer = sample("llamacpp", "models")
        (model,) = LLAMACPP.models(answer)
        assert (model.id, model.max_model_len) == ("smollm2-135m", 2048)
        assert model.raw["meta"]["n_ctx_train"] == 8192

    def test_openai_and_what_is_like_it(self) -> None:
        answer = {
            "object": "list",
            "data": [
                {"id": "gpt-x", "object": "model", "created": 1, "owned_by": "openai"},
                {"id": "a/b", "context_length": 131072},
                {"id": "c", "context_window": 8192},
                {"id": "d", "max_model_len": 0},
            ],
        }
        told = [(model.id, model.max_model_len) for model in OPENAI.models(answer)]
        assert told == [("gpt-x", None), ("a/b", 131072), ("c", 8192), ("d", None)]

    def test_no_models(self) -> None:
        assert OPENAI.models({"object": "list", "data": None}) == []
        assert VLLM.models({"object": "list", "data": []}) == []

    @ALL
    @pytest.mark.parametrize("answer", [{}, {"data": {}}, {"data": [3]}, {"data": [{"id": None}]}, {"detail": "Not Found"}])
    def test_another_answer_is_an_error(self, engine: Adapter, answer: Json) -> None:
        with pytest.raises(UnexpectedAnswerError):
            engine.models(answer)


def error(message: str, **fields: Any) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}}


class TestErrors:
    @pytest.mark.parametrize("engine", [VLLM, OPENAI], ids=lambda engine: engine.name)
    @pytest.mark.parametrize("name", ["chat_too_long", "max_tokens_over_context"])
    def test_overflow_of_vllm(self, engine: Adapter, name: str) -> None:
        _, status, answer = sample("vllm", name)
        assert engine.is_context_overflow(status, answer)
        assert engine.is_context_overflow(status, answer["error"])
        assert not engine.is_context_overflow(500, answer)

    @pytest.mark.parametrize("engine", [LLAMACPP, OPENAI], ids=lambda engine: engine.name)
    def test_overflow_of_llamacpp(self, engine: Adapter) -> None:
        _, status, answer = sample("llamacpp", "chat_too_long")
        assert engine.is_context_overflow(status, answer)

    @pytest.mark.parametrize(
        "answer",
        [
            error("Your input exceeds the limit of this model.", code="context_length_exceeded", param="messages"),
            error("This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens."),
            {
                "object": "error",
                "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
            },
        ],
    )
    def test_overflow_of_others(self, answer: Json) -> None:
        assert OPENAI.is_context_overflow(400, answer)

    @ALL
    @pytest.mark.parametrize(
        ("folder", "name"),
        [
            ("vllm", "chat_max_tokens_0"),
            ("vllm", "chat_unknown_model"),
            ("vllm", "chat_bad_role"),
            ("vllm", "x_chat_bad_temperature"),
            ("vllm", "x_chat_tools_unsupported"),
            ("vllm", "x_404"),
            ("llamacpp", "n_over_slots"),
            ("llamacpp", "two_assistants"),
            ("llamacpp", "version"),
        ],
    )
    def test_other_errors_are_no_overflow(self, engine: Adapter, folder: str, name: str) -> None:
        _, status, answer = sample(folder, name)
        assert not engine.is_context_overflow(status, answer)
        assert not engine.rejects_include_usage(status, answer)
        assert engine.is_unknown_model(status, answer) == (name == "chat_unknown_model" and engine is not LLAMACPP)

    def test_llamacpp_answers_to_any_name(self) -> None:
        request, status, answer = sample("llamacpp", "chat_unknown_model")
        assert (request["model"], status, answer["model"]) == ("nope", 200, "smollm2-135m")
        assert not LLAMACPP.capabilities.checks_model_name
        assert VLLM.capabilities.checks_model_name

    @pytest.mark.parametrize(
        ("status", "answer"),
        [
            (404, error("The model `gpt-x` does not exist or you do not have access to it.", code="model_not_found")),
            (404, error('model "x" not found, try pulling it first', type="api_error")),
            (400, error("Unknown model", code="model_not_found")),
        ],
    )
    def test_unknown_model_of_others(self, status: int, answer: Json) -> None:
        assert OPENAI.is_unknown_model(status, answer)

    @pytest.mark.parametrize(
        ("status", "answer"),
        [
            (400, error("Unknown parameter: 'stream_options'.", code="unknown_parameter", param="stream_options")),
            (400, {"detail": "Extra parameters ['stream_options'] are not allowed"}),
            (400, error("Validation error at #/stream_options: Extra inputs are not permitted", code=400)),
            (
                422,
                {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"]}]}},
            ),
        ],
    )
    def test_servers_that_know_no_stream_options(self, status: int, answer: Json) -> None:
        assert OPENAI.rejects_include_usage(status, answer)
        assert not OPENAI.rejects_include_usage(500, answer)


class TestForbidden:
    @ALL
    @pytest.mark.parametrize(
        "path",
        [
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter/",
            "/v1//load_lora_adapter",
            "//v1/load_lora_adapter",
            "/v1/chat/../load_lora_adapter",
            "/v1/load%5flora%5Fadapter",
            "/v1/load%255flora_adapter",
            "/v1/%2e%2e/v1/load_lora_adapter",
            "/V1/LOAD_LORA_ADAPTER",
            "/v1\\load_lora_adapter",
            "/v1/load_lora_adapter?x=/v1/models",
            "/v1/realtime/client_secrets",
            "/v1/fine_tuning/jobs",
            "/v1/organization/admin_api_keys",
        ],
    )
    def test_administration_is_out_of_reach(self, engine: Adapter, path: str) -> None:
        assert engine.is_forbidden(path)

    @ALL
    @pytest.mark.parametrize(
        "path",
        [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/models",
            "/v1/responses",
            "/v1/messages/count_tokens",
            "/v1/rerank",
            "/v1/audio/transcriptions",
            "/v1/threadsafe",
        ],
    )
    def test_inference_is_not(self, engine: Adapter, path: str) -> None:
        assert not engine.is_forbidden(path)

    def test_vllms_own_scale_out_routes(self) -> None:
        assert VLLM.is_forbidden("/v1/chat/completions/render")
        assert VLLM.is_forbidden("/v1/completions/derender")
        assert not VLLM.is_forbidden("/v1/chat/completions/batch")


class TestCapabilities:
    def test_what_the_recorded_answers_show_is_what_is_claimed(self) -> None:
        def token_ids_of(folder: str) -> bool:
            _, _, answer = sample(folder, "chat_return_token_ids")
            return answer["choices"][0].get("token_ids") is not None

        def prompt_logprobs_of(folder: str) -> bool:
            _, _, answer = sample(folder, "chat_prompt_logprobs")
            return answer.get("prompt_logprobs") is not None

        def as_many_as_asked(folder: str) -> bool:
            request, _, answer = sample(folder, "compl_min_tokens")
            return bool(answer["usage"]["completion_tokens"] >= request["min_tokens"])

        def usage_in_stream(folder: str) -> bool:
            return '"usage":{' in (SAMPLES / folder / "chat_stream.txt").read_text()

        def follows_schema(folder: str) -> bool:
            request, _, answer = sample(folder, "chat_json_schema")
            wanted = request["response_format"]["json_schema"]["schema"]["required"]
            return set(json.loads(answer["choices"][0]["message"]["content"])) >= set(wanted)

        for engine, folder in ((VLLM, "vllm"), (LLAMACPP, "llamacpp")):
            claims = engine.capabilities
            assert claims.token_ids == token_ids_of(folder)
            assert claims.prompt_logprobs == prompt_logprobs_of(folder)
            assert claims.min_tokens == as_many_as_asked(folder)
            assert claims.include_usage == usage_in_stream(folder)
            assert claims.json_schema == follows_schema(folder)
            assert claims.tools is None

    def test_nothing_is_claimed_for_a_server_of_which_nothing_is_known(self) -> None:
        claims = OPENAI.capabilities
        assert (claims.tools, claims.json_schema, claims.include_usage) == (None, None, None)
        assert not (claims.scoring or claims.prompt_logprobs or claims.min_tokens or claims.token_ids)
