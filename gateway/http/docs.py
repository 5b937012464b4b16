"""`GET /docs`: the OpenAPI document as a page to read, made here: no script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse

from gateway.http.examples import body_example, curl
from gateway.http.words import fields, kind

router = APIRouter()

Schema = Mapping[str, Any]

_METHODS: Final = ("get", "put", "post", "patch", "delete")
_CODE: Final = re.compile(r"`([^`]+)`")
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #666; }
:root { --get: #1a7f37; --put: #b35900; --post: #0969da; --del: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --get: #4ac26b; --put: #e0823d; --post: #6cb6ff; --del: #ff7b72; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 6rem; }
h1 { margin: 0; } h2 { margin: 2.5rem 0 .5rem; text-transform: capitalize; } h3 { margin: 1.2rem 0 .3rem; font-size: 1rem; }
code, pre { font: .875em/1.5 ui-monospace, monospace; } code { background: var(--soft); padding: .1em .3em; border-radius: 3px; }
pre { background: var(--soft); padding: .8rem; border-radius: 6px; overflow-x: auto; margin: .3rem 0; }
details.operation { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; }
details.operation > summary { padding: .5rem .8rem; cursor: pointer; display: flex; gap: .8rem; flex-wrap: wrap; align-items: baseline; }
details.operation > div { padding: 0 .8rem .8rem; border-top: 1px solid var(--line); overflow-x: auto; }
details.operation > summary b { width: 4.2rem; } summary span { color: var(--dim); }
.get { color: var(--get); } .put, .patch { color: var(--put); } .post { color: var(--post); } .delete { color: var(--del); }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
td, th { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--dim); } td:first-child { white-space: nowrap; } .dim { color: var(--dim); }
"""
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Open to anybody, as `/openapi.json` is: it says nothing of this gateway that its source does not."""
    app: FastAPI = request.app
    return HTMLResponse(page(app.openapi()), headers=dict(_HEADERS))


def page(document: Schema) -> str:
    """The whole page of an OpenAPI document."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(info['title'])} {escape(info['version'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} <span class=dim>{escape(info['version'])}</span></h1><p>{_prose(info.get('summary', ''))}</p>",
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>. In the lines for a shell, <code>$URL</code> is the gateway\'s '
        "address, as <code>http://127.0.0.1:8080</code>, and <code>$KEY</code> a key of it.</p>",
    ]
    for tag, operations in _by_tag(document).items():
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += [_operation(path, method, operation) for path, method, operation in operations]
    return "".join([*parts, "</body></html>\n"])


def _by_tag(document: Schema) -> dict[str, list[tuple[str, str, Schema]]]:
    found: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                found.setdefault(item[method].get("tags", ["other"])[0], []).append((path, method, item[method]))
    return found


def _operation(path: str, method: str, operation: Schema) -> str:
    key = "Open to anybody." if operation.get("security") == [] else "Needs a key."
    parts = [
        f'<details class="operation" id="{escape(operation["operationId"])}"><summary><b class="{method}">{method.upper()}</b>',
        f"<code>{escape(path)}</code><span>{_prose(operation.get('summary', ''))}</span></summary><div>",
        f"<p>{_prose(operation.get('description', ''))} <span class=dim>{key}</span></p>",
    ]
    if parameters := operation.get("parameters"):
        rows = [
            (each["name"], each["in"], kind(each["schema"]), "yes" if each.get("required") else "", each.get("description", ""))
            for each in parameters
        ]
        parts += ["<h3>Parameters</h3>", _table(("name", "in", "type", "needed", ""), rows)]
    if body := operation.get("requestBody"):
        parts += _body(body)
    parts += ["<h3>Answers</h3>", _answers(operation["responses"])]
    parts += ["<h3>From a shell</h3>", f"<pre>{escape(curl(path, method, operation))}</pre></div></details>"]
    return "".join(parts)


def _body(body: Schema) -> Iterator[str]:
    yield f"<h3>Body</h3><p>{_prose(body.get('description', ''))}</p>"
    for media, content in body["content"].items():
        schema = content.get("schema", {})
        yield f"<p class=dim>{escape(media)}</p>"
        if rows := fields(schema):
            yield _table(("field", "type", "needed", ""), rows)
        if (example := body_example(content)) is not None:
            yield f"<pre>{escape(example)}</pre>"


def _answers(responses: Schema) -> str:
    ordered = sorted(responses.items())
    parts = [
        _table(("status", "when", "type"), [(status, each["description"], ", ".join(each.get("content", {}))) for status, each in ordered])
    ]
    for status, each in ordered:
        for media, content in each.get("content", {}).items():
            if status.startswith("2") and (found := fields(content.get("schema", {}))):
                parts.append(f"<h3>{escape(status)}, {escape(media)}</h3>{_table(('field', 'type', 'always', ''), found)}")
    headers = {name: header["description"] for _, each in ordered for name, header in each.get("headers", {}).items()}
    if headers:
        parts.append(f"<h3>Headers of answers</h3>{_table(('header', ''), list(headers.items()))}")
    return "".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    lines = ["".join(f"<td>{_cell(each, first=n == 0)}</td>" for n, each in enumerate(row)) for row in rows]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(text: str, *, first: bool) -> str:
    return f"<code>{escape(text)}</code>" if first else _prose(text)


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
