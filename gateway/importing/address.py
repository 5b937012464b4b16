"""An `api_base` as a backend's `url`: without what a `url` cannot hold, and a short name for where it leads."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gateway.importing.document import Value, text
from gateway.importing.report import Report

_SETTING = "litellm_params.api_base"
_ENDPOINT = re.compile(r"/(chat/completions|completions|embeddings|responses|messages)/?$")
_ENDING = re.compile(r"_(API_BASE|BASE_URL|API_URL|API_ENDPOINT|ENDPOINT|BASE|URL)$")
_NUMERIC = re.compile(r"[\d.]+|.*:.*")


def address(given: Value, report: Report) -> str | None:
    """The `url`, or None where there is none in it. What is left away or may not fit is told, without showing it."""
    try:
        parts = urlsplit((text(given) or "").strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not host or re.search(r"\s", parts.netloc + parts.path):
        return None
    if "@" in parts.netloc:
        report.lost(given.place, _SETTING, "user and password in an address are not copied: backends take a key only")
    if parts.query or parts.fragment:
        report.lost(given.place, _SETTING, "what stands behind ? or # is not copied: a `url` has neither")
    path = parts.path.rstrip("/")
    if _ENDPOINT.search(path):
        path = _ENDPOINT.sub("", path).rstrip("/")
        report.changed(given.place, _SETTING, "names one endpoint; a `url` is where all of them begin")
    if path and not path.endswith("/v1"):
        report.todo(given.place, _SETTING, "after the `url` every path begins with /v1: see whether this server answers there")
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2]}{path}"


def host(url: str) -> str:
    """What to call the place: the variable that names it, an IP address, or the telling part of a host's name."""
    if url.startswith("${"):
        return _ENDING.sub("", url[2:-1]).lower().replace("_", "-").strip("-") or "engine"
    found = urlsplit(url).hostname or "engine"
    labels = found.split(".")
    if _NUMERIC.fullmatch(found) or len(labels) == 1:
        return found
    return labels[1] if labels[0] in ("api", "www") and len(labels) > 2 else labels[0]
