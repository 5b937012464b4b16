"""Secrets of a LiteLLM configuration as references to environment variables; no secret goes further than this module.

`os.environ/NAME` becomes `${NAME}`. A key that stands in the file itself gets a variable, the same key the same one.
What only looks like a key, because a client insists on having one, is left out.
"""

from __future__ import annotations

import re

from gateway.config.problems import shown
from gateway.importing.document import Value, text, variable
from gateway.importing.names import unique, words
from gateway.importing.report import Report

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What people write where no key is needed (lower case, without punctuation).
_NO_KEYS = words(
    "na no none null nil empty dummy fake fakekey fakeapikey dummykey dummyapikey nokey nokeyneeded nokeyrequired noapikey notneeded "
    "notused notrequired unused skno sknone skempty skdummy skfake sknokey sknokeyrequired sknotneeded anything any x xx xxx xxxx "
    "placeholder ollama lmstudio vllm local test"
)
_SETTING = "litellm_params.api_key"


class Variables:
    """Names of variables for the secrets met so far. `needed`: those that the written configuration asks for, in order."""

    def __init__(self, report: Report) -> None:
        self.needed: list[str] = []
        self._report = report
        self._literals: dict[str, str] = {}

    def reference(self, name: str) -> str:
        """`${NAME}`; a name that no reference can hold is changed to one that it can."""
        fit = re.sub(r"[^A-Za-z0-9_]", "_", name)
        fit = fit if _NAME.fullmatch(fit) else f"_{fit}"
        if fit not in self.needed:
            self.needed.append(fit)
        return f"${{{fit}}}"

    def key(self, value: Value | None, owner: str) -> str | None:
        """The reference for an `api_key`, or None for no key. `owner`: what a new variable is called after."""
        if value is None or (written := text(value)) is None:
            return None
        if (name := variable(value)) is not None:
            reference = self.reference(name)
            if reference != f"${{{name}}}":
                self._report.todo(
                    value.place, _SETTING, f"variable {shown(name)} is called {reference[2:-1]} now: its old name fits no reference"
                )
            return reference
        if re.sub(r"[^a-z0-9]", "", written.lower()) in _NO_KEYS | {""}:
            self._report.add("unneeded", value.place, _SETTING, "a placeholder, not a key: nothing is sent")
            return None
        if written not in self._literals:
            name = re.sub(r"[^A-Z0-9]+", "_", owner.upper()).strip("_")
            name = name if _NAME.fullmatch(name) else f"MODEL_{name}".rstrip("_")
            taken = {*self.needed, *self._literals.values()}
            self._literals[written] = unique(name if name.endswith("_KEY") else f"{name}_KEY", taken).replace("-", "_")
        name = self._literals[written]
        message = f"the key stands in the file and is not copied: put it into variable {name}, or into a file that {name}_FILE names"
        self._report.todo(value.place, _SETTING, message)
        return self.reference(name)
