"""What the OpenAPI document says of decisions, feedback and dry runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from gateway.http import schema
from gateway.http.admin.asked import MOST, USUAL
from gateway.http.shapes import ENVELOPE, INTEGER, NUMBER, STRING, described, nullable, parameter, shape
from gateway.serving.call import Outcome
from gateway.serving.feedback import FEEDBACK_ID, METRIC, VERDICTS

_Responses = Mapping[int | str, Mapping[str, Any]]

_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
_RESULT: Final[Mapping[str, Any]] = {"enum": [*get_args(Outcome), None], "description": "How the request ended; null: it was only tried."}
_TAGS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": STRING}
_POLICY: Final[Mapping[str, Any]] = shape(
    {"name": {**STRING, "description": "`none`: a real model was asked for."}, "version": nullable(INTEGER, "null: it has none.")}
)
_USAGE: Final[Mapping[str, Any]] = {
    **shape(
        {
            "prompt_tokens": INTEGER,
            "cached_tokens": INTEGER,
            "completion_tokens": INTEGER,
            "estimated": {"type": "boolean", "description": "Counted here, for the backend never told."},
        },
        optional=("prompt_tokens", "cached_tokens", "completion_tokens", "estimated"),
    ),
    "description": "Empty: not known.",
}
_ESTIMATE: Final[Mapping[str, Any]] = shape(
    {
        "quality": nullable(NUMBER, "0 to 1; null: the policy does not estimate any."),
        "quality_low": nullable(NUMBER, "Lower end of an interval around it."),
        "quality_high": nullable(NUMBER, "Upper end."),
        "cost": {**NUMBER, "description": "USD."},
        "latency_s": {**NUMBER, "description": "Seconds."},
        "score": nullable(NUMBER, "What is compared: quality less what cost and latency are worth, and the policy's own bonus."),
    }
)
_CANDIDATE: Final[Mapping[str, Any]] = shape(
    {
        "plan": nullable(STRING, "null: a real model was asked for."),
        "model": nullable(STRING, "null: the configuration that knew it is not in use any more."),
        "reasoning": nullable(STRING, "How hard it is to think; null: as the model does."),
        "strategy": STRING,
        "budget_tokens": nullable(INTEGER, "null: it has no budget."),
        "estimate": nullable(_ESTIMATE, "null: a real model was asked for, or the configuration that knew is not in use any more."),
        "propensity": {**NUMBER, "description": "With which it was drawn."},
    }
)
_COUNT: Final[Mapping[str, Any]] = nullable(INTEGER, "null: not known.")
_CALL: Final[Mapping[str, Any]] = shape(
    {
        "purpose": STRING,
        "backend": STRING,
        "model": STRING,
        "status": nullable(INTEGER, "null: it never answered."),
        "prompt_tokens": _COUNT,
        "cached_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "cost": nullable(NUMBER, "USD; null: not known."),
        "start_ms": {**NUMBER, "description": "Since the request came."},
        "end_ms": nullable(NUMBER, "Since the request came."),
    }
)
_LABEL: Final[Mapping[str, Any]] = shape({"metric": STRING, "value": NUMBER, "source": STRING, "labelling_probability": NUMBER})
_SHARED: Final[Mapping[str, Any]] = {
    "id": STRING,
    "object": {"const": "decision"},
    "created": {**INTEGER, "description": "When the request came; seconds since 1970."},
    "requested_model": nullable(STRING, "null: none, or what was named could be no model."),
    "policy": _POLICY,
    "config_hash": STRING,
    "propensity": {**NUMBER, "description": "With which the chosen plan was drawn."},
    "explored": {"type": "boolean", "description": "The draw was not the policy's favourite."},
    "served_model": nullable(STRING, "null: none did."),
    "usage": _USAGE,
    "cost": nullable(NUMBER, "USD; null: not known."),
    "latency_ms": nullable(NUMBER, "Until the answer, or the stream, had ended."),
    "status": nullable(INTEGER, "null: the caller left before there was one, or it was only tried."),
    "result": _RESULT,
    "code": nullable(STRING, "Of the error that the gateway answered with."),
    "request_id": STRING,
    "tags": _TAGS,
}
_DECISION: Final[Mapping[str, Any]] = shape(
    {
        **_SHARED,
        "dry_run": {"type": "boolean"},
        "snapshot": nullable(STRING, "Of what the policy had learnt; null: it does not learn."),
        "feature_version": nullable(STRING, "Of what the policy saw of the prompt; null: it did not look."),
        "candidates": {"type": "array", "items": _CANDIDATE},
        "excluded": {"type": "array", "items": shape({"plan": STRING, "reason": STRING})},
        "prices": {"type": "object", "additionalProperties": NUMBER},
        "runner_up_price": nullable(NUMBER, "Of a USD, in quality: at which the best other plan would score as high; null: none."),
        "shadow": {"type": "object", "additionalProperties": STRING, "description": "Policy in the shadow -> the plan it would choose."},
        "fallback": nullable(STRING, "Why the baseline served although no policy chose it; null: one did."),
        "chosen": nullable(STRING, "The plan; null: a real model was asked for."),
        "calls": {"type": "array", "items": _CALL},
        "strategy_candidates": {"type": "array", "items": _OBJECT},
        "strategy_why": nullable(STRING, "In a word, why the candidate that won did; null: there was no strategy."),
        "outcome": {"type": "array", "items": _LABEL, "description": "How good it was, as far as somebody said."},
    }
)
_UNAVAILABLE: Final = described("The database is away, or there is none", ENVELOPE)
_INVALID: Final = described("What is asked for cannot be", ENVELOPE)
_LIMITED: Final = described("A limit", ENVELOPE)

DECISION: _Responses = {
    **schema.ERRORS,
    200: described("The decision", _DECISION),
    404: described("There is no such decision of this key's tenant, or it has not ended", ENVELOPE),
    429: _LIMITED,
    503: _UNAVAILABLE,
}
DECISION_ID: Final[Mapping[str, Any]] = {
    "parameters": [parameter("decision_id", "path", STRING, "The `x-trilemma-decision-id` of an answer.")]
}

FEEDBACK: _Responses = {
    **schema.ERRORS,
    202: described(
        "It counts, once",
        shape(
            {
                "object": {"const": "feedback"},
                "id": STRING,
                "status": {
                    "enum": ["joined", "pending", "duplicate"],
                    "description": "pending: the decision's row is not known here, it may come. duplicate: its `feedback_id` was seen.",
                },
            }
        ),
    ),
    400: _INVALID,
    404: described("There is no such decision of this key's tenant", ENVELOPE),
    413: described("The body is too large", ENVELOPE),
    429: _LIMITED,
    503: described("There is no database, or too much waits for it", ENVELOPE),
}
FEEDBACK_BODY: Final[Mapping[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "`metric` and `value`, or `verdict`.",
        "content": {
            "application/json": {
                "schema": shape(
                    {
                        "decision_id": {**STRING, "description": "The `x-trilemma-decision-id` of an answer."},
                        "metric": {
                            "type": ["string", "null"],
                            "pattern": METRIC,
                            "description": "What is judged: `quality`, or a name of your own.",
                        },
                        "value": {"type": ["number", "boolean", "null"], "minimum": 0, "maximum": 1, "description": "1, or true, is good."},
                        "verdict": {"enum": [*VERDICTS, None], "description": "Of the quality: 1 for the first two, 0 for the others."},
                        "feedback_id": {
                            "type": ["string", "null"],
                            "pattern": FEEDBACK_ID,
                            "description": "Your own: the same one counts once in a tenant.",
                        },
                    },
                    optional=("metric", "value", "verdict", "feedback_id"),
                ),
                "example": {"decision_id": "0199c5a67e5b7b3d8c55a1f0e2d3c4b5-0123456789ab", "verdict": "good_fit"},
            }
        },
    },
}

ROUTE: _Responses = {
    **schema.ANSWERS,
    200: described("What would be decided", _DECISION, schema.ANSWERS[200]["headers"]),
}
ROUTE_BODY: Final[Mapping[str, Any]] = schema.body(schema.CHAT)

_SUMMARY: Final[Mapping[str, Any]] = shape(
    {
        **_SHARED,
        "tenant": STRING,
        "key": {**STRING, "description": "The name of the key that asked."},
        "backend": nullable(STRING, "null: none was asked."),
        "plan": nullable(STRING, "null: no policy chose one."),
        "strategy": STRING,
        "attempts": INTEGER,
        "session": nullable(STRING, "What stands for its session in this tenant."),
    }
)
LIST: _Responses = {
    **schema.ERRORS,
    200: described(
        "The newest first",
        shape(
            {
                "object": {"const": "list"},
                "data": {"type": "array", "items": _SUMMARY},
                "next": nullable(STRING, "`cursor` of the next page; null: there is none."),
            }
        ),
    ),
    400: _INVALID,
    503: _UNAVAILABLE,
}
_SESSION: Final = "As the caller named it, or as a decision shows it."
LIST_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        parameter("tenant", "query", STRING, "Only of this tenant."),
        parameter("key", "query", STRING, "Only of the key of this name."),
        parameter("model", "query", STRING, "Only what this real model served."),
        parameter("policy", "query", STRING, "Only what this policy chose; `none`: what no policy did."),
        parameter("outcome", "query", {"enum": list(get_args(Outcome))}, "Only what ended so: `result` of a decision."),
        parameter("session", "query", STRING, f"Only of this session. {_SESSION}"),
        parameter("since", "query", STRING, "Only what came then or later: seconds since 1970, or a time with its zone."),
        parameter("until", "query", STRING, "Only what came before that."),
        parameter("limit", "query", {**INTEGER, "minimum": 1, "maximum": MOST, "default": USUAL}, "Decisions on a page."),
        parameter("cursor", "query", STRING, "`next` of the page before."),
    ]
}
ERASED: _Responses = {
    **schema.ERRORS,
    200: described(
        "Nothing of it is left",
        shape(
            {
                "object": {"const": "erasure"},
                "deleted": {"type": "object", "additionalProperties": INTEGER, "description": "Table -> rows."},
            }
        ),
    ),
    400: _INVALID,
    503: described("The database is away, or there is none. What was deleted is deleted: ask again for the rest", ENVELOPE),
}
ERASE_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        parameter("tenant", "query", STRING, "All of this tenant; with `session`: only that session of it."),
        parameter("session", "query", STRING, f"All of this session. {_SESSION}"),
    ]
}
