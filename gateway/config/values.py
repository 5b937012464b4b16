"""The tree's values as plain data, with references answered.

Where a value is exactly one reference, the key decides what it is: a number for `port`, text for a key made of digits.
Where both would do (a policy's parameters), the answer is read as YAML would read it, and in quotes it is text.
"""

from __future__ import annotations

from typing import Any

from gateway.config.problems import Finding, Loc
from gateway.config.references import References, UnansweredError, is_whole
from gateway.config.tree import Entries, Items, Node, resolve


class Values:
    """`data`: lists, dicts and scalars of the tree; `findings`: references without an answer, whose value is None."""

    def __init__(self, root: Node, references: References) -> None:
        self.findings: list[Finding] = []
        self._references = references
        self._other_readings: dict[Loc, Any] = {}
        self.data: Any = self._build(root, ())

    def reread(self, loc: Loc) -> bool:
        """Take the other reading of the reference at `loc` (text or YAML value); False when there is none left."""
        if not loc or loc not in self._other_readings:
            return False
        target = self.data
        for part in loc[:-1]:
            target = target[part]
        target[loc[-1]] = self._other_readings.pop(loc)
        return True

    def _build(self, node: Node, loc: Loc) -> Any:
        if isinstance(node, Items):
            return [self._build(child, (*loc, index)) for index, child in enumerate(node.nodes)]
        if isinstance(node, Entries):
            return {key: self._build(child, (*loc, key)) for key, (_, child) in node.pairs.items()}
        if "${" not in node.text:
            return resolve(node.text) if node.plain else node.text
        try:
            text = self._references.expand(node.text)
        except UnansweredError as error:
            self.findings.append(Finding(loc, str(error)))
            return None
        value = resolve(text)
        if value == text or not is_whole(node.text):
            return text
        first, self._other_readings[loc] = (value, text) if node.plain else (text, value)
        return first
