"""A configuration's text as it may be shown, kept and given back: its literal secrets masked.

Secrets stand in `server.secret`, `backends.*.key`, `embeddings.*.key`, `strategies.*.verifier.key`, `learning.verifier.key`, the password
of `storage.url`, and behind an engine's secret flags in `backends.*.args`.
One is literal unless it is exactly one reference without a default: `${NAME}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from gateway.config.canonical import SECRET_FLAG, URL_PASSWORD
from gateway.config.load import Loaded
from gateway.config.problems import Finding, Loc
from gateway.config.schema import Config
from gateway.config.tree import LOADER, Entries, Items, Mark, Node, Scalar, compose, find, resolve

MASK: Final = "***"

# A shorter one stands in too many other words to be looked for elsewhere in the text.
_SHORTEST: Final = 12
_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_]\w*(?::-[^{}]*)?\}", re.ASCII)
_NO_LITERAL: Final = re.compile(r"(?:\$\{[A-Za-z_]\w*(?::-)?\})?", re.ASCII)
_USER_INFO: Final = re.compile(r"://([^/]*)@")
_PASSWORD: Final = re.compile(r"://[^/@:]*:([^/@]*)@")
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is or holds a secret in plain text. shown: the same, masked."""

    scalar: Scalar
    shown: str


def literals(root: Node) -> dict[Loc, Literal]:
    """Every value that holds one, by its place."""
    found = {}
    for loc, scalar, shown in _secret_places(root):
        is_null = scalar.plain and resolve(scalar.text) is None
        if shown is not None and not is_null:
            found[loc] = Literal(scalar, shown)
    return found


def masked(loaded: Loaded) -> str:
    """The text, with `***` for each literal secret, and for what the configuration's secrets are wherever it stands as well."""
    text = _replaced(loaded.text, {each.scalar.mark: each.shown for each in literals(_tree(loaded)).values()})
    for secret in _secrets(loaded.config):
        text = text.replace(secret, MASK)
    return text


def holds_secrets(loaded: Loaded) -> bool:
    """Whether a secret stands in the text itself."""
    return bool(literals(_tree(loaded))) or any(secret in loaded.text for secret in _secrets(loaded.config))


def filled(text: str, root: Node, before: Loaded) -> str:
    """The text (root: its tree) with the secrets that `before` has in the same places, where it shows them masked."""
    known = literals(_tree(before))
    changes = {}
    for loc, each in literals(root).items():
        if loc in known and each.scalar.text == known[loc].shown:
            changes[each.scalar.mark] = known[loc].scalar.text
    return _replaced(text, changes)


def fresh_secrets(root: Node, before: Loaded) -> list[Finding]:
    """What is wrong with a new text: secrets in it that `before` does not have in the same places."""
    known = literals(_tree(before))
    return [
        Finding(loc, _refusal(loc, each))
        for loc, each in literals(root).items()
        if loc not in known or each.scalar.text != known[loc].scalar.text
    ]


def _tree(loaded: Loaded) -> Node:
    """Of its text; a worker is given its configuration without one."""
    return loaded.document if loaded.document.size > 1 else compose(loaded.text)[0]


def _refusal(loc: Loc, literal: Literal) -> str:
    if literal.scalar.text == literal.shown:
        return f"`{MASK}` stands for the secret that is here now, and there is none"
    instead = {"secret": ", or give `secret_file`", "key": ", or give `key_file`"}.get(str(loc[-1]), "")
    return f"a secret in plain text is not taken: write ${{NAME}}, which the environment answers{instead}"


def _secret_places(root: Node) -> Iterator[tuple[Loc, Scalar, str | None]]:
    """(place, value as written, the same masked; None: there is no secret in it) wherever one may stand."""
    named = {section: _names(root, section) for section in ("backends", "embeddings")}
    keys = [(section, name, "key") for section, names in named.items() for name in names]
    checkers = [("strategies", name, "verifier", "key") for name in _names(root, "strategies")]
    for loc in (("server", "secret"), *keys, *checkers, ("learning", "verifier", "key")):
        node = find(root, loc)
        if isinstance(node, Scalar):
            yield loc, node, _masked_value(node.text)
    node = find(root, ("storage", "url"))
    if isinstance(node, Scalar):
        yield ("storage", "url"), node, _masked_url(node.text)
    for name in named["backends"]:
        args = find(root, ("backends", name, "args"))
        if isinstance(args, Items):
            yield from _masked_args(("backends", name, "args"), args)


def _names(root: Node, section: str) -> list[str]:
    node = find(root, (section,))
    return list(node.pairs) if isinstance(node, Entries) else []


def _masked_value(text: str) -> str | None:
    return None if _NO_LITERAL.fullmatch(text) else MASK


def _masked_url(text: str) -> str | None:
    # References may hold any of : / @ in their defaults.
    flat = _REFERENCE.sub(lambda match: "$" * len(match[0]), text)
    info = _USER_INFO.search(flat)
    if info is None:
        shown, passwords = URL_PASSWORD.subn(rf"\1:{MASK}", text)
        return shown if passwords else None
    user, colon, _ = info[1].partition(":")
    start, end = info.start(1) + len(user + colon), info.end(1)
    if not colon:  # user and password may both come of one reference
        start = info.start(1)
        return f"{text[:start]}{MASK}{text[end:]}" if ":-" in text[start:end] else None
    return f"{text[:start]}{MASK}{text[end:]}" if _masked_value(text[start:end]) else None


def _masked_args(loc: Loc, args: Items) -> Iterator[tuple[Loc, Scalar, str | None]]:
    secret_follows = False
    for index, node in enumerate(args.nodes):
        if not isinstance(node, Scalar):
            secret_follows = False
            continue
        flag = SECRET_FLAG.fullmatch(node.text)
        if secret_follows and not node.text.startswith("--"):
            yield (*loc, index), node, _masked_value(node.text)
        elif flag is not None and flag[2] is not None:
            yield (*loc, index), node, f"{flag[1]}={MASK}" if _masked_value(flag[2][1:]) else None
        secret_follows = flag is not None and flag[2] is None


def _secrets(config: Config) -> list[str]:
    """What the configuration keeps to itself, wherever it came from; only what is long enough to be looked for."""
    verifiers = [config.learning.verifier, *(each.verifier for each in config.strategies.values())]
    given = [config.server.secret, *(None if each is None else each.key for each in verifiers)]
    given += [*(each.key for each in config.backends.values()), *(each.key for each in config.embeddings.values())]
    found = {each.get_secret_value() for each in given if each is not None}
    password = _PASSWORD.search(config.storage.url)
    if password is not None:
        found.add(password[1])
    return sorted((each for each in found if len(each) >= _SHORTEST), key=len, reverse=True)


def _replaced(text: str, values: Mapping[Mark, str]) -> str:
    """The text with other values in these places, each in double quotes; anchors and tags stay."""
    if not values:
        return text
    parts, at = [], 0
    for event in yaml.parse(text, Loader=LOADER):
        start, end = event.start_mark, event.end_mark
        if not isinstance(event, yaml.ScalarEvent) or start is None or end is None:
            continue
        value = values.get(Mark(start.line + 1, start.column + 1))
        if value is not None:
            written = text[start.index : end.index]
            properties = _PROPERTIES.match(written)
            assert properties is not None, "it matches nothing, too"
            space = written[len(written.rstrip()) :]  # behind a block
            parts += [text[at : start.index], properties[0], json.dumps(value, ensure_ascii=False), space]
            at = end.index
    return "".join([*parts, text[at:]])
