"""docs/routing.md names every policy and wrapper with each parameter and its default, and its examples load."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from gateway.config.check import check
from gateway.config.load import parse
from policies.registry import ALGORITHMS, WRAPPERS

PAGE = (Path(__file__).parents[1] / "docs/routing.md").read_text()
BASE = """\
version: 1
backends: {a: {url: "http://a", models: {small: small, large: large}}}
models: {small: {price: {input: 0.1, output: 0.4}}, large: {price: {input: 1, output: 4}}}
keys: [{name: k, sha256: "%s"}]
storage: {url: "sqlite:///x.db"}
""" % ("ab" * 32)


@pytest.mark.parametrize(("name", "path"), [*ALGORITHMS.items(), *WRAPPERS.items()])
def test_every_parameter_stands_there_with_its_default(name: str, path: str) -> None:
    section = PAGE.split(f"### `{name}`\n", 1)[1].split("\n##", 1)[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    fields = {field.name: field for field in msgspec.structs.fields(importlib.import_module(path).Params)}

    assert set(rows) == set(fields)
    for parameter, written in rows.items():
        field = fields[parameter]
        if written.startswith("`"):
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()  # type: ignore[operator]
            assert json.loads(msgspec.json.encode(default)) == yaml.safe_load(written.strip("`")), parameter
        elif written == "required":
            assert field.required, parameter
        elif written == "none":
            assert field.default is None, parameter
        else:
            assert written.startswith("see"), parameter


def test_no_section_is_left_of_what_is_no_more() -> None:
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == {*ALGORITHMS, *WRAPPERS}


def test_examples_work() -> None:
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    policies = {name: spec for each in examples for name, spec in each.get("policies", {}).items()}
    (virtual,) = [each["virtual_models"] for each in examples if "virtual_models" in each]
    virtual["rules"] = {"policy": "by-hand", "plans": {"small": {"model": "small"}, "large": {"model": "large"}}}
    assert {"learn", "by-hand"} == set(policies)

    config = parse(BASE + yaml.safe_dump({"policies": policies, "virtual_models": virtual}), {}).config
    assert [finding.message for finding in check(config)] == []
