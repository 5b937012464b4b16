"""What the OpenAPI document says of `/admin/policies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.http.admin.asked import MOST, USUAL
from gateway.http.admin.described import CHANGE_ERRORS, CHANGED
from gateway.http.schema import ERRORS
from gateway.http.shapes import ENVELOPE, INTEGER, NUMBER, STRING, STRINGS, described, header, nullable, parameter, shape

Responses = Mapping[int | str, Mapping[str, Any]]
Schema = Mapping[str, Any]

_ANYTHING: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": True}
_SECONDS: Final[Mapping[str, Any]] = {**NUMBER, "description": "Seconds since 1970."}
_FLAG: Final[Mapping[str, Any]] = {"type": "boolean"}
_WHOLE: Final[Mapping[str, Any]] = {**INTEGER, "minimum": 1}
_NEXT: Final = nullable(STRING, "`cursor` of the next page; null: there is none.")
_ETAG: Final[Mapping[str, Any]] = {"ETag": header("Of the policy's configuration, in double quotes.")}
_STATISTICS: Final[Mapping[str, Any]] = {
    **_ANYTHING,
    "description": "By plan, as the algorithm keeps them; of a wrapper, those inside of it in `inner`.",
}


def _list(items: Schema, **more: Schema) -> dict[str, Any]:
    return shape({"object": {"const": "list"}, "data": {"type": "array", "items": items}, "next": _NEXT, **more})


_USE: Final = shape(
    {
        "name": {**STRING, "description": "Of the virtual model."},
        "learns": _FLAG,
        "version": {**INTEGER, "description": "Of what it has learnt; 0: nothing yet."},
        "observations": {**INTEGER, "description": "Decisions that are in it."},
        "created": nullable(NUMBER, "When that version was made; seconds since 1970."),
        "data_from": nullable(NUMBER, "When the first of them was decided; seconds since 1970."),
        "data_to": nullable(NUMBER, "When the last of them was decided; seconds since 1970."),
        "note": nullable(STRING, "Why it is not the version before and what came since; null: it is."),
    }
)
_SECTION: Final[Mapping[str, Any]] = {
    "type": {**STRING, "minLength": 1, "description": "The algorithm."},
    "params": {**_ANYTHING, "description": "Its parameters."},
    "floor": {**NUMBER, "minimum": 0, "exclusiveMaximum": 1, "description": "Total share of requests drawn evenly over the plans."},
    "seed": {**INTEGER, "minimum": 0, "description": "Of the draws."},
    "wrappers": {"type": "array", "items": _ANYTHING, "description": "What is put around it, the innermost first."},
}
_POLICY: Final[Mapping[str, Any]] = {
    "object": {"const": "policy"},
    "name": STRING,
    "configured": {**_FLAG, "description": "false: it is built in."},
    **_SECTION,
    "etag": STRING,
    "virtual_models": {"type": "array", "items": _USE, "description": "Those that it decides for."},
    "named_by": {**STRINGS, "description": "Other policies that it watches, or is a canary of."},
}
_KNOWN: Final[Mapping[str, Any]] = {
    **_POLICY,
    "statistics": {"type": "object", "additionalProperties": _STATISTICS, "description": "By virtual model."},
}
_LEARNING: Final[Mapping[str, Any]] = {
    "anyOf": [
        shape(
            {
                "waiting": {**INTEGER, "description": "Outcomes that wait, counted up to 10,000."},
                "folded": {**INTEGER, "description": "Outcomes that this process has folded."},
                "skipped": {"type": "object", "additionalProperties": INTEGER, "description": "Those that taught nothing, by reason."},
                "last_fold": nullable(NUMBER, "Seconds since 1970; null: none in this process."),
                "error": nullable(STRING, "Why nothing can be learnt now."),
            }
        ),
        {"type": "null"},
    ],
    "description": "null: there is no database, and nothing is learnt.",
}
_VERSION: Final[Mapping[str, Any]] = {
    "object": {"const": "policy.version"},
    "version": INTEGER,
    "created": _SECONDS,
    "config_hash": {**STRING, "description": "Of the configuration under which it was made."},
    "plans": STRINGS,
    "feature_version": {**STRING, "description": "Names and sizes of the features that it reads."},
    "size": nullable(INTEGER, "Bytes; null: it is not kept, but was made again."),
    "observations": INTEGER,
    "data_from": nullable(NUMBER, "Seconds since 1970."),
    "data_to": nullable(NUMBER, "Seconds since 1970."),
    "note": nullable(STRING, "Why it is not the version before and what came since; null: it is."),
}
_DIFFERENCES: Final[Mapping[str, Any]] = {"type": "array", "items": shape({"what": STRING, "from": {}, "to": {}})}
_TALLY: Final = shape(
    {
        "decisions": INTEGER,
        "failed": INTEGER,
        "labels": INTEGER,
        "quality": nullable(NUMBER, "Mean, 0 to 1; null: no labels."),
        "cost": nullable(NUMBER, "Mean, USD; null: not known."),
    }
)
_RECORD: Final[Mapping[str, Any]] = {**_ANYTHING, "description": "The verdict, the rule, and every number that led to it."}
_TAKEN: Final[Mapping[str, Any]] = dict(CHANGED)

_OF_ONE: Responses = {**ERRORS, 404: described("There is no such policy", ENVELOPE)}
_AWAY: Final = described("There is no database, or it does not answer", ENVELOPE)
_OF_PAST: Responses = {
    **ERRORS,
    400: described("A parameter cannot be so, or the virtual model is to be named", ENVELOPE),
    404: described("There is no such policy, or version", ENVELOPE),
    503: _AWAY,
}
_CHANGE: Responses = {**ERRORS, **CHANGE_ERRORS}
_POSTED: Responses = {
    **_CHANGE,
    404: described("There is no such policy in the configuration", ENVELOPE),
    409: described("It cannot be done as things are; why", ENVELOPE),
}

NAME: Final = parameter("name", "path", STRING, "Of the policy.")
IF_MATCH: Final = parameter("If-Match", "header", STRING, "The `ETag` of the policy that is to be replaced, or `*`.")
_MODEL: Final = parameter("virtual_model", "query", STRING, "Needed where several could be meant.")
_LIMIT: Final = parameter("limit", "query", {**INTEGER, "minimum": 1, "maximum": MOST, "default": USUAL}, "Entries on a page.")
_NUMBER: Final = parameter("version", "path", _WHOLE, "Its number.")


def _body(properties: Mapping[str, Schema], example: Mapping[str, Any], *, required: tuple[str, ...] = (), needed: bool = True) -> Any:
    optional = tuple(name for name in properties if name not in required)
    content = {"application/json": {"schema": shape(properties, optional=optional), "example": example}}
    return {"required": needed, "content": content}


LIST: Responses = {**ERRORS, 200: described("Policies, as they are configured", _list(shape(_POLICY), learning=_LEARNING))}
ONE: Responses = {**_OF_ONE, 200: described("The policy", shape(_KNOWN), _ETAG)}
VERSIONS: Responses = {**_OF_PAST, 200: described("The newest first", _list(shape(_VERSION), virtual_model=STRING))}
VERSIONS_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [NAME, _MODEL, _LIMIT, parameter("cursor", "query", STRING, "`next` of the page before.")]
}
VERSION: Responses = {
    **_OF_PAST,
    200: described("The version", shape({**_VERSION, "virtual_model": STRING, "statistics": _STATISTICS})),
    409: described("It is of other plans, features or another algorithm", ENVELOPE),
}
VERSION_QUERY: Final[Mapping[str, Any]] = {"parameters": [NAME, _NUMBER, _MODEL]}
DIFF: Responses = {
    **_OF_PAST,
    200: described(
        "The difference",
        shape(
            {
                "object": {"const": "policy.diff"},
                "virtual_model": STRING,
                "from": INTEGER,
                "to": INTEGER,
                "statistics": _DIFFERENCES,
                "config": {**_DIFFERENCES, "type": ["array", "null"], "description": "Of its section; null: a text was not kept."},
            }
        ),
    ),
    409: described("One is of other plans, features or another algorithm", ENVELOPE),
}
DIFF_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        NAME,
        parameter("from", "query", _WHOLE, "A version.", required=True),
        parameter("to", "query", _WHOLE, "Another one. Default: the newest."),
        _MODEL,
    ]
}
_BUCKET: Final = shape({"from": _SECONDS, "to": _SECONDS, "plans": {"type": "object", "additionalProperties": _TALLY}})
CURVE: Responses = {**_OF_PAST, 200: described("Stretches of equal time", _list(_BUCKET, virtual_model=STRING, decisions=INTEGER))}
CURVE_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        NAME,
        parameter("buckets", "query", {**_WHOLE, "maximum": 500, "default": 20}, "How many."),
        parameter("last", "query", {**_WHOLE, "maximum": 100_000, "default": 10_000}, "Only so many decisions, the newest."),
        parameter("since", "query", STRING, "Only what was decided then or later: seconds since 1970, or a time with its zone."),
        parameter("until", "query", STRING, "Only what was decided before that."),
        _MODEL,
    ]
}
EVALUATED: Responses = {
    **_OF_PAST,
    200: described(
        "What it would have been worth",
        shape(
            {
                "object": {"const": "policy.evaluation"},
                "virtual_model": STRING,
                "state": {
                    "anyOf": [shape({"version": INTEGER, "observations": INTEGER}), {"type": "null"}],
                    "description": "What it knew, and kept; null: it learnt through the log, or learns nothing.",
                },
                "learnt_from": {
                    "anyOf": [
                        shape({"from": nullable(NUMBER, "Seconds since 1970."), "to": nullable(NUMBER, "Seconds since 1970.")}),
                        {"type": "null"},
                    ],
                    "description": "When the decisions were made that this state has learnt from: rows of that time flatter it.",
                },
                "report": {**_ANYTHING, "description": "Rows, what is left out and why, shares of plans, and each estimator's figures."},
            }
        ),
    ),
    409: described("The log cannot tell; why", ENVELOPE),
    413: described("The body is too large", ENVELOPE),
    503: described("Another evaluation is running; or there is no database, or it does not answer", ENVELOPE),
    504: described("It takes too long", ENVELOPE),
}
EVALUATE_BODY: Final[Mapping[str, Any]] = {
    "parameters": [NAME],
    "requestBody": _body(
        {
            "virtual_model": nullable(STRING, "Needed where several could be meant."),
            "last": {**_WHOLE, "maximum": 100_000, "default": 10_000, "description": "Only so many decisions, the newest."},
            "since": {"type": ["number", "string", "null"], "description": "Seconds since 1970, or a time with its zone."},
            "until": {"type": ["number", "string", "null"], "description": "Seconds since 1970, or a time with its zone."},
            "state": {"enum": ["current", "none", None], "description": "none: it begins with nothing and learns through the log."},
            "all_turns": {**_FLAG, "description": "Later turns of conversations, too."},
            "clip": nullable({**NUMBER, "exclusiveMinimum": 0}, "IPS: weights are cut to this."),
            "switch": nullable({**NUMBER, "exclusiveMinimum": 0}, "SWITCH: above this weight the reward model alone."),
        },
        {"last": 10_000},
        needed=False,
    ),
}

PUT: Responses = {
    **_CHANGE,
    200: described("It is changed", shape({**_KNOWN, **_TAKEN}), _ETAG),
    201: described("It is made", shape({**_KNOWN, **_TAKEN}), _ETAG),
}
PUT_BODY: Final[Mapping[str, Any]] = {
    "parameters": [
        NAME,
        {**IF_MATCH, "description": f"{IF_MATCH['description']} Needed but for a new one with `If-None-Match: *`."},
        parameter("If-None-Match", "header", {"enum": ["*"]}, "Only if there is none of this name."),
    ],
    "requestBody": _body(_SECTION, {"type": "thompson", "floor": 0.02}, required=("type",)),
}
DELETED: Responses = {
    **_POSTED,
    200: described("It is gone", shape({"object": {"const": "policy.deleted"}, "name": STRING, **_TAKEN})),
}
REWRAPPED: Responses = {**_POSTED, 200: described("The policy as it is now", shape({**_KNOWN, **_TAKEN}), _ETAG)}
REWRAP: Final[Mapping[str, Any]] = {
    "parameters": [NAME, {**IF_MATCH, "required": False, "description": "Only if the policy is the one with this `ETag`."}]
}
SHADOW_BODY: Final[Mapping[str, Any]] = {
    **REWRAP,
    "requestBody": _body({"policy": nullable(STRING, "Who watches; null: nobody.")}, {"policy": "candidate"}, required=("policy",)),
}
LEARNT: Responses = {
    **_OF_PAST,
    200: described(
        "The new version",
        shape(
            {
                "object": {"const": "policy.learnt"},
                "virtual_model": STRING,
                "version": INTEGER,
                "observations": INTEGER,
                "data_from": nullable(NUMBER, "Seconds since 1970."),
                "data_to": nullable(NUMBER, "Seconds since 1970."),
                "note": nullable(STRING, "Why it is not the version before and what came since."),
            }
        ),
    ),
    409: described("It cannot be done as things are; why", ENVELOPE),
    413: described("The body is too large", ENVELOPE),
}
ROLLBACK_BODY: Final[Mapping[str, Any]] = {
    "parameters": [NAME, _MODEL],
    "requestBody": _body({"version": _WHOLE}, {"version": 3}, required=("version",)),
}
REBUILD: Final[Mapping[str, Any]] = {"parameters": [NAME, _MODEL]}
PROMOTED: Responses = {
    **_POSTED,
    200: described(
        "The candidate decides now",
        shape(
            {
                "object": {"const": "policy.promotion"},
                "virtual_model": STRING,
                "from": STRING,
                "to": STRING,
                "forced": _FLAG,
                "version": nullable(INTEGER, "Of what the candidate begins with; null: it learns nothing."),
                "record": _RECORD,
                **_TAKEN,
            }
        ),
    ),
    409: described(
        "The rule does not say so, or it cannot be done as things are",
        {**ENVELOPE, "properties": {**ENVELOPE["properties"], "record": _RECORD}},
    ),
    503: described("Another evaluation is running; or there is no database, or it does not answer", ENVELOPE),
    504: described("It takes too long", ENVELOPE),
}
_SHARE: Final[Mapping[str, Any]] = {**NUMBER, "minimum": -1, "maximum": 1}
PROMOTE_BODY: Final[Mapping[str, Any]] = {
    "parameters": [NAME],
    "requestBody": _body(
        {
            "candidate": {**STRING, "minLength": 1, "description": "The policy that is to take its place."},
            "virtual_model": nullable(STRING, "Needed where it decides for several."),
            "force": {**_FLAG, "description": "Whatever the rule says."},
            "margin": {**_SHARE, "default": 0, "description": "Quality that may be lost; negative: must be gained."},
            "dearer": nullable({**NUMBER, "minimum": -1}, "Share by which the mean cost may rise (default 0); null: any."),
            "slower": nullable({**NUMBER, "minimum": -1}, "Share by which the mean latency may rise; null (default): any."),
            "least": {**_WHOLE, "default": 500, "description": "Requests that it takes."},
            "least_labels": {**_WHOLE, "default": 100, "description": "Labels that it takes."},
            "last": {**_WHOLE, "default": 50_000, "description": "Only so many decisions, the newest."},
        },
        {"candidate": "next", "margin": 0.01},
        required=("candidate",),
    ),
}
