"""A plan's strategy at work: candidates from the pool, one of them as the answer.

    answer = await decoded(decoding, way, model, errand, receipt, turns)     the winner's own body, with the usage of all

Each candidate, and each question to a role, is relayed as any request is: its own queue, retries and breaker. Candidates are calls of their
own, for engines differ in what they make of `n`. All end with the request: nobody is left running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec
import orjson

from gateway.engines.reasoning import thinking_members
from gateway.serving.call import Answer, Call, Purpose, Receipt, Tried, UpstreamCall
from gateway.serving.eligible import least
from gateway.serving.errand import Errand
from gateway.serving.included import Tell
from gateway.serving.needs import need_of
from gateway.serving.patience import Patience
from gateway.serving.purse import Purse
from gateway.serving.relay import Way, apart
from gateway.serving.state import CHARACTERS_OF_TOKEN, Decoding, RealModel
from gateway.serving.writing import Writing, completion, told_more
from gateway.wire.answers import answer_of, text_of
from gateway.wire.errors import JSON, ApiError, Header
from gateway.wire.request import json_object, read, with_members
from gateway.wire.scores import PATHS, score_body, score_of
from gateway.wire.usage import Usage
from policies.decoding.single import Single
from policies.decoding.strategy import REWARD, SAMPLER, VERIFIER, NoneLeft, Sample, Strategy, Task, Unanswered, Won, Written
from policies.judging.conversation import conversation
from policies.judging.lineup import ended
from policies.judging.pointwise import ROOM
from policies.values.answer import Said
from policies.values.prompt import Turn

PATH: Final = "/v1/chat/completions"
# What is asked of a role is told apart from candidates by its index.
_ASKED: Final = 1_000_000
# Characters of the request that a model which scores pairs of texts is shown.
_QUESTION: Final = 24_000
# More than half of the candidates failed: there is an answer, but hardly a choice.
_BELOW: Final = "_below_quorum"
_BOUNDS: Final = ("max_completion_tokens", "max_tokens")
# vLLM's word in its refusal.
_THINKING: Final = b"thinking_token_budget"
_FORM: Final = ("response_format", "structured_outputs", "stop", "logprobs", "top_logprobs")
_PURPOSES: Final[Mapping[str, Purpose]] = {"judge": "judge", "estimator": "judge"}


class _Refused(Exception):
    """A backend says that the request cannot be served: it would say so of every candidate."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _Came(msgspec.Struct, frozen=True):
    """What came of a call: the answer as it is relayed, its body, and what is known of it."""

    answer: Answer
    body: dict[str, Any]
    part: Receipt


class Work:
    """The roles of one request (policies/decoding/strategy.py). came: by index of the sample. error: why the last that failed did; last:
    what the last said whose backend failed."""

    def __init__(self, decoding: Decoding, way: Way, model: RealModel, errand: Errand, receipt: Receipt, turns: Sequence[Turn]) -> None:
        self._decoding = decoding
        self._way = way
        self._model = model
        self._errand = errand
        self._receipt = receipt
        self.asked = json_object(errand.body) or {}
        seed = self.asked.get("seed")
        self._seed = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
        self._body = _alone(errand.body, self.asked, decoding)
        self._writing = Writing(model, self.asked, errand, self._written_by)
        self._thinking = decoding.strategy.needs.thinking
        self._begun = 0
        self._questions = 0
        share = None if errand.choice is None else errand.choice.most
        self._longest = min([bound for name in _BOUNDS if isinstance(bound := self.asked.get(name), int) and bound > 0], default=None)
        chance = self._seed if self._seed is not None else int(receipt.decision_id[-12:], 16)
        self._task = Task(turns, chance, least(self._longest, share))
        self.purse = Purse(share, receipt.permit)
        self.came: dict[int, _Came] = {}
        self.error: ApiError | None = None
        self.last: Answer | None = None

    @property
    def task(self) -> Task:
        """See Roles."""
        return self._task

    async def sample(self, n: int, role: str = SAMPLER) -> AsyncGenerator[Sample, None]:
        """See Roles. Raises what no other candidate could change."""
        ended: asyncio.Queue[Sample | Exception | None] = asyncio.Queue()

        async def one(index: int) -> None:
            try:
                ended.put_nowait(await self._candidate(index, role))
            except Exception as error:  # whoever takes it raises it
                ended.put_nowait(error)

        first, self._begun = self._begun, self._begun + n
        tasks = [asyncio.create_task(one(index), name=f"candidate {index}") for index in range(first, first + n)]
        try:
            for _ in tasks:
                sample = await ended.get()
                if isinstance(sample, Exception):
                    raise sample
                if sample is not None:
                    yield sample
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, role: str, prompt: str, most: int) -> Sample:
        """See Roles."""
        self._questions += 1
        index, model = _ASKED + self._questions, self._player(role)
        purpose = _PURPOSES.get(role, "candidate")
        if (held := model.held_context()) is not None:
            most = min(most, held // 2)
        form: dict[str, Any] = {}
        if purpose == "candidate":  # it may be the answer: in the form that the caller wants, and no longer
            most = least(most, self._longest) or most
            form = {name: self.asked[name] for name in _FORM if self.asked.get(name) is not None}
        most = await self.purse.lend(len(prompt.encode("utf-8", "replace")), most)
        said = [{"role": "user", "content": prompt}]
        body = orjson.dumps({"model": model.public, "messages": said, "max_tokens": most, "temperature": 0, **form})
        try:
            answer, part = await self._relayed(model, self._question(PATH, body, purpose))
        except ApiError as error:
            raise Unanswered(error.code) from None
        if part.usage is not None:
            self.purse.returned(most - part.usage.completion)
        sample = self._sample(index, answer, part)
        if sample is None:
            raise Unanswered("answer")
        return sample

    @property
    def writes(self) -> bool:
        """See Roles."""
        return self._writing.able

    @property
    def bounds_thoughts(self) -> bool:
        """See Roles."""
        return self._thinking is not None and all(thinking_members(each.adapter.name, 1) for each in self._model.backends)

    async def write(self, text: str, most: int | None, stop: Sequence[str] = ()) -> Written:
        """See Roles."""
        if not self._receipt.tried:
            self._receipt.tried.append(Tried(0))
        try:
            return await self._writing.on(text, most, stop)
        except (ApiError, Unanswered) as error:
            if isinstance(error, ApiError):
                self.error = error
            if self._writing.parts:
                self._receipt.tried[0].outcome = "failed"
            else:  # another way may be gone
                self._receipt.tried.clear()
            raise Unanswered(error.code if isinstance(error, ApiError) else str(error)) from None

    def written(self, thought: str, said: str, finish: str | None) -> Sample:
        """See Roles."""
        parts, (tried,) = self._writing.parts, self._receipt.tried
        tried.outcome, tried.finish = "lost", finish
        tried.tokens = sum([part.usage.completion for part in parts if part.usage is not None])
        tried.cost = sum([part.cost for part in parts])
        body = completion(said, thought, finish, self._writing.body)
        self.came[0] = _Came(Answer(200, []), body, parts[0])
        return Sample(0, Said(said, finish=finish, thought=bool(thought)), tried.tokens)

    def tell(self, sentence: str) -> None:
        """See Roles."""
        messages = self.asked["messages"] = told_more(self.asked.get("messages"), sentence)
        self._body = with_members(self._body, {"messages": orjson.dumps(messages)})

    def room(self, role: str, most: int, wished: int) -> int:
        """See Roles."""
        held = self._player(role).held_context()
        return wished if held is None else min(wished, (held - min(most, held // 2)) * CHARACTERS_OF_TOKEN)

    async def score(self, role: str, samples: Sequence[Sample]) -> list[float | None]:
        """See Roles."""
        one = self._verified if role == VERIFIER else self._rewarded
        tasks = [asyncio.create_task(one(sample), name=f"{role} {sample.index}") for sample in samples]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rewarded(self, sample: Sample) -> float | None:
        model, scoring, turns = self._decoding.roles[REWARD], self._decoding.scoring, self._task.turns
        space = self.room(REWARD, 0, ROOM)
        text = ended(text_of((sample.said,)), space // 2)
        left = space - len(text)
        said = [(turn.role, turn.text) for turn in turns]
        fits = sum([len(each) for _, each in said]) <= left
        question = said[0][1] if fits and len(said) == 1 else conversation(turns, min(_QUESTION, left))
        body = score_body(scoring, model.public, question, said if fits else [("user", question)], text)
        try:
            await self.purse.lend(len(body), 0)
            answer, _ = await self._relayed(model, self._question(PATHS[scoring], body, "scorer"))
        except (ApiError, Unanswered):
            return None
        if answer.stream is not None:
            answer.stream.close()
            return None
        found = json_object(answer.body) if answer.status == 200 else None
        return None if found is None else score_of(scoring, found)

    async def _verified(self, sample: Sample) -> float | None:
        verifier = self._decoding.verifier
        assert verifier is not None, "a configuration that passes the check names it"
        left_s = max(0.0, self._way.patience.left_s())
        messages = bytes(self._errand.fields.messages)
        return await verifier.score(self._way.transport, self._receipt.decision_id, messages, text_of((sample.said,)), left_s)

    def _question(self, path: str, body: bytes, purpose: Purpose) -> Errand:
        """What is asked about answers, with none of the caller's own headers. Scores of another model would be on another scale."""
        return msgspec.structs.replace(
            self._errand,
            call=Call("POST", path, b"", [JSON], time.perf_counter()),
            body=body,
            fields=read(body, 1),
            ask_usage=False,
            choice=None,
            purpose=purpose,
            may_stand_in=purpose != "scorer",
        )

    async def _candidate(self, index: int, role: str) -> Sample | None:
        """One answer; None: it failed, and others may not."""
        tried = Tried(index)
        self._receipt.tried.append(tried)
        changes = {} if self._seed is None else {"seed": b"%d" % (self._seed + index)}
        model, choice = self._player(role), self._errand.choice
        if choice is not None and model is not self._model:  # the plan's bound holds for all; how its model thinks, for none other
            choice = msgspec.structs.replace(choice, reasoning=None)
        errand = msgspec.structs.replace(
            self._errand,
            body=with_members(self._body, changes) if changes else self._body,
            ask_usage=False,
            purpose="candidate",
            choice=choice,
            thinking=self._thinking,
        )
        try:
            answer, part = await self._relayed(model, errand)
            if self._thinking is not None and answer.status == 400 and _THINKING in answer.body:  # the engine was not started for it
                self._thinking = None
                answer, part = await self._relayed(model, msgspec.structs.replace(errand, thinking=None))
        except ApiError as error:
            tried.outcome, self.error = "failed", error
            return None
        if answer.stream is None and 400 <= answer.status < 500 and part.outcome == "caller_error":
            tried.outcome = "failed"
            raise _Refused(answer)
        sample = self._sample(index, answer, part)
        tried.outcome = "failed" if sample is None else "lost"
        if sample is None and answer.stream is None and answer.status >= 400:
            self.last = answer
        if sample is not None:
            tried.finish, tried.tokens, tried.cost = sample.said.finish, sample.tokens, part.cost
            self.purse.ended(sample.tokens)
        return sample

    async def _relayed(self, model: RealModel, errand: Errand) -> tuple[Answer, Receipt]:
        """With a patience of its own, for it runs in a task of its own. Raises ApiError."""
        way = msgspec.structs.replace(self._way, patience=Patience(self._way.patience.deadline))
        return await apart(way, model, errand, self._receipt)

    async def _written_by(self, model: RealModel, errand: Errand) -> tuple[Answer, Receipt]:
        answer, part = await self._relayed(model, errand)
        if answer.stream is not None:
            answer.stream.close()
        elif 400 <= answer.status < 500 and part.outcome == "caller_error":
            self._receipt.tried[0].outcome = "failed"
            raise _Refused(answer)
        return answer, part

    def _sample(self, index: int, answer: Answer, part: Receipt) -> Sample | None:
        if answer.stream is not None:  # an answer without end
            answer.stream.close()
            return None
        said = answer_of(answer.body) if answer.status == 200 else None
        body = json_object(answer.body)
        if not said or body is None:
            return None
        self.came[index] = _Came(answer, body, part)
        return Sample(index, said[0], 0 if part.usage is None else part.usage.completion, body["choices"][0].get("logprobs"))

    def finish_of(self, index: int) -> str | None:
        """Why the answer of that index ended, as its engine says."""
        found: str | None = self.came[index].body["choices"][0].get("finish_reason")
        return found

    def _player(self, role: str) -> RealModel:
        return self._decoding.roles.get(role, self._model)


async def decoded(
    decoding: Decoding, way: Way, model: RealModel, errand: Errand, receipt: Receipt, turns: Sequence[Turn], tell: Tell | None = None
) -> Answer:
    """The answer that the strategy gives. tell: hears how many candidates have ended. Raises ApiError; nothing is left open."""
    begun = time.perf_counter()
    work = Work(decoding, way, model, errand, receipt, turns)
    strategy: Strategy = decoding.strategy
    alike = decoding.temperature is None and work.asked.get("temperature") == 0
    if alike and strategy.most > 1 and not strategy.needs.mixed:
        strategy = Single("temperature_0")  # all would be the same
    beside = receipt.permit.beside() if receipt.permit is not None and strategy.most > 1 else None
    won: Won | None = None
    try:
        if beside is not None:  # before anything is spent there has to be room for all
            need = need_of(errand.body, errand.fields, answers=True).times(strategy.most - 1)
            if not beside.take(need):
                await beside.drawn(need)
        async with aclosing(strategy.run(work)) as events:
            async for event in events:
                if isinstance(event, Won):
                    won = event
                elif tell is not None:
                    tell(event.ended)
    except _Refused as refused:
        receipt.status, receipt.outcome = refused.answer.status, "caller_error"
        if receipt.words is not None:
            receipt.words.hear(refused.answer.body)
        headers = [*_foreign(refused.answer.headers), *receipt.headers(stream=False)]
        return Answer(refused.answer.status, headers, refused.answer.body)
    except NoneLeft:
        if work.error is None and work.last is not None:  # as it would be told of a plain call
            receipt.status, receipt.outcome = work.last.status, "backend_error"
            return Answer(work.last.status, [*_foreign(work.last.headers), *receipt.headers(stream=False)], work.last.body)
        raise work.error or ApiError(502, "backend_bad_answer", "No candidate came of this request.") from None
    finally:
        receipt.waited += time.perf_counter() - begun
        receipt.calls.sort(key=lambda call: call.started)
        guess(receipt.calls, work.task.most)
        if beside is not None:  # what was used of it counts with the request's own, if that is known
            unknown = any(call.purpose == "candidate" and call.outcome == "cancelled" and call.usage is None for call in receipt.calls)
            beside.close(None if unknown else 0)
        work.purse.close()
        receipt.usage = _used(work, receipt)  # also where nothing comes of it
        if won is not None:
            for tried in receipt.tried:
                tried.score = won.scores.get(tried.index)
                tried.outcome = "won" if tried.index == won.index else tried.outcome
            if won.index >= _ASKED:  # it was written by a role: a candidate like any other
                written = work.came[won.index].part
                tokens = 0 if written.usage is None else written.usage.completion
                receipt.tried.append(Tried(len(receipt.tried), "won", work.finish_of(won.index), None, tokens, written.cost))
    assert won is not None, "a strategy ends with a winner, or raises"
    return _taken(won, work, decoding, receipt)


def _taken(won: Won, work: Work, decoding: Decoding, receipt: Receipt) -> Answer:
    """The winner's body, unchanged but for its usage: the prompt counts once, and of answers all that was sampled."""
    came = work.came[won.index]
    body, part = came.body, came.part
    receipt.served_model, receipt.backend, receipt.rates = part.served_model, part.backend, part.rates
    failed = sum([tried.outcome == "failed" for tried in receipt.tried])
    why = f"{won.why}{_BELOW}" if 2 * failed > len(receipt.tried) else won.why
    receipt.status, receipt.outcome, receipt.why = came.answer.status, "ok", why
    receipt.places = won.places
    if decoding.strategy.needs.logprobs and not work.asked.get("logprobs"):
        for choice in body["choices"]:
            choice["logprobs"] = None
    elif decoding.strategy.needs.top > (top := work.asked.get("top_logprobs") or 0):
        for token in [each for choice in body["choices"] for each in (choice.get("logprobs") or {}).get("content") or ()]:
            token["top_logprobs"] = (token.get("top_logprobs") or [])[:top]
    usage = receipt.usage
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "trilemma": {
                purpose: _tokens(receipt, purpose) for purpose in sorted({call.purpose for call in receipt.calls if call.usage is not None})
            },
        }
    data = orjson.dumps(body)
    if receipt.words is not None:
        receipt.words.hear(data)
    return Answer(200, [JSON, *_foreign(came.answer.headers), *receipt.headers(stream=False)], data)


def guess(calls: Sequence[UpstreamCall], most: int | None) -> None:
    """Says of cancelled candidates what they are likely to have sampled by then, for their engines never do: at the pace of the others of
    the same model, which have told, and with the prompt of the first. calls: in the order in which they began, so that what a role that
    answers is asked comes after. most: tokens of one."""
    for call in calls:
        if call.purpose != "candidate" or call.outcome != "cancelled" or call.usage is not None or call.ended is None:
            continue
        alike = [each for each in calls if each.purpose == "candidate" and each.model == call.model and not each.estimated]
        others = [(each, each.usage) for each in alike if each.usage is not None]
        took_s = sum([each.ended - each.started for each, _ in others if each.ended is not None])
        if took_s > 0:
            pace, told = sum([usage.completion for _, usage in others]) / took_s, others[0][1]
            tokens = int(pace * (call.ended - call.started))
            call.usage, call.estimated = Usage(told.prompt, told.cached, tokens if most is None else min(tokens, most)), True


def _used(work: Work, receipt: Receipt) -> Usage | None:
    """The caller's prompt, once, and all that was sampled; None: nobody told."""
    asked = next((came.part.usage for index, came in sorted(work.came.items()) if index < _ASKED), None)
    if asked is None:
        return None
    sampled = [call.usage.completion for call in receipt.calls if call.usage is not None and call.purpose == "candidate"]
    return Usage(asked.prompt, asked.cached, sum(sampled))


def _tokens(receipt: Receipt, purpose: Purpose) -> dict[str, int]:
    """What the calls for that purpose read and wrote."""
    found = [call.usage for call in receipt.calls if call.purpose == purpose and call.usage is not None]
    prompts, answers = sum([each.prompt for each in found]), sum([each.completion for each in found])
    guessed = sum([call.estimated for call in receipt.calls if call.purpose == purpose])
    told = {"calls": len(found), "prompt_tokens": prompts, "completion_tokens": answers}
    return told | {"estimated_calls": guessed} if guessed else told


def _foreign(headers: Sequence[Header]) -> list[Header]:
    """Without what every answer of the gateway has, which stands in a candidate's for its part alone."""
    return [
        header
        for header in headers
        if header[0] not in (b"x-request-id", b"content-type") and not header[0].startswith((b"x-trilemma-", b"x-ratelimit-"))
    ]


def _alone(body: bytes, asked: Mapping[str, Any], decoding: Decoding) -> bytes:
    """The body of one candidate: no stream, log-probabilities where the strategy wants them, and no lower temperature than it may have."""
    changes: dict[str, bytes] = {}
    if asked.get("stream"):
        changes["stream"] = b"false"
    if "stream_options" in asked:
        changes["stream_options"] = b"null"
    needs = decoding.strategy.needs
    if needs.logprobs and not asked.get("logprobs"):
        changes["logprobs"] = b"true"
    if needs.top > (asked.get("top_logprobs") or 0):
        changes["top_logprobs"] = b"%d" % needs.top
    temperature = asked.get("temperature")
    if decoding.temperature is not None and isinstance(temperature, int | float) and temperature < decoding.temperature:
        changes["temperature"] = b"%r" % decoding.temperature
    return with_members(body, changes) if changes else body
