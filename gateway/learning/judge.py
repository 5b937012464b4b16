"""A model of the gateway's own that grades answers of others.

It is asked as anybody is: through its queue, behind interactive callers, with retries over its replicas. What it costs is the operator's:
the calls stand with the decision that is graded, with the purpose `judge`, and nobody's limits count them.

    value = (verdict - 1) / 4          verdict: 1 to 5; asked for once more where there is none
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
import orjson

from gateway.access.keys import Principal
from gateway.config.schema import Judge as Settings
from gateway.learning.findings import Case, Findings
from gateway.learning.reviewing import Unjudged
from gateway.pool.transport import Transport
from gateway.serving.call import Call, Receipt
from gateway.serving.errand import Errand
from gateway.serving.patience import Patience
from gateway.serving.relay import Way, apart
from gateway.serving.state import RealModel, State
from gateway.store.record import call_row
from gateway.wire.answers import answer_of
from gateway.wire.errors import JSON, ApiError
from gateway.wire.request import read
from policies.prompts.judge import BEST, WORST, judge_prompt, verdict

_PATH: Final = "/v1/chat/completions"
_CALLER: Final = Principal("judge", "judge", frozenset(("inference",)), None, priority="batch")

Worked = Callable[[Receipt], None]


class Judge:
    """state: in use. worked: told of the calls that were made for each grade. random: spreads waits."""

    def __init__(self, transport: Transport, state: Callable[[], State], findings: Findings, worked: Worked, random: Random) -> None:
        self._transport = transport
        self._state = state
        self._findings = findings
        self._worked = worked
        self._random = random

    async def review(self, case: Case) -> float:
        """See reviewing.Review."""
        state = self._state()
        settings = state.config.learning.judge
        model = None if settings is None else state.names.get(settings.model)
        if settings is None or not isinstance(model, RealModel):
            raise Unjudged("gone", weighs=False)
        if case.model == model.public:
            raise Unjudged("its_own", weighs=False)
        messages = msgspec.json.decode(case.messages)
        receipt = Receipt(f"req_judge_{case.decision_id}", case.decision_id, case.received, _CALLER, state.hash)
        patience = Patience()
        patience.bound(patience.now() + settings.timeout_s)
        try:
            for again in (False, True):
                prompt = judge_prompt(case.decision_id, messages, case.answer, settings.criteria, again=again)
                grade = verdict(await self._asked(model, settings, prompt, patience, receipt))
                if grade is not None:
                    return (grade - WORST) / (BEST - WORST)
            raise Unjudged("verdict")
        except ApiError as error:
            raise Unjudged(error.code) from None
        finally:
            self._account(case, receipt)

    async def _asked(self, model: RealModel, settings: Settings, prompt: str, patience: Patience, receipt: Receipt) -> str:
        """What the model says, from its first letter to its last. Raises ApiError, Unjudged."""
        asked = {
            "model": model.public,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": settings.max_tokens,
            "temperature": 0,
        }
        body = orjson.dumps(asked)
        errand = Errand(
            call=Call("POST", _PATH, b"", [JSON], time.perf_counter()),
            body=body,
            fields=read(body, 1),
            form=None,
            ask_usage=False,
            openai=True,
            may_stand_in=False,
            idle_s=None,
            purpose="judge",
        )
        answer, part = await apart(Way(self._transport, patience, _nobody, self._random), model, errand, receipt)
        if answer.stream is not None:  # an answer without end
            answer.stream.close()
            raise Unjudged("answer")
        said = answer_of(answer.body) if part.outcome == "ok" else None
        if said is None:
            raise Unjudged("answer")
        return said[0].text

    def _account(self, case: Case, receipt: Receipt) -> None:
        """The calls go where those of the decision are, after them."""
        if receipt.calls:
            self._worked(receipt)
            self._findings.calls([call_row(case.decision_id, case.calls + n, call, case.received) for n, call in enumerate(receipt.calls)])


def _nobody(_receipt: Receipt) -> None:
    """No stream is taken, so none ends."""
