"""docs/discovery.md names every key with its default, and its examples fit the specs."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.pool.discovery.listing import replicas
from gateway.pool.discovery.spec import DnsSpec, FileSpec, KubernetesSpec

PAGE = (Path(__file__).parents[3] / "docs/discovery.md").read_text()
SPECS = {"dns": DnsSpec, "file": FileSpec, "kubernetes": KubernetesSpec}


def section(name: str) -> str:
    return PAGE.split(f"## `{name}`\n", 1)[1].split("\n## ", 1)[0]


def example(name: str) -> Any:
    """What `discover` holds for that source in its section's first example."""
    found = re.search(r"```yaml\n(backends:.*?)```", section(name), re.DOTALL)
    assert found
    return yaml.safe_load(found[1])["backends"]["gpu"]["discover"][name]


@pytest.mark.parametrize("name", SPECS)
def test_every_key_has_its_row_and_its_default(name: str) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(name), re.MULTILINE))
    assert list(rows) == [field.name for field in fields(SPECS[name])]
    for field in fields(SPECS[name]):
        if field.default is MISSING:
            assert rows[field.name] == "required"
        elif field.default is not None:
            assert rows[field.name] == f"`{field.default}`"
        else:
            assert not re.fullmatch("`.*`|required", rows[field.name])


@pytest.mark.parametrize("name", SPECS)
def test_examples_fit_the_specs(name: str) -> None:
    SPECS[name](**example(name))


def test_the_list_of_replicas_is_one_in_a_file_too() -> None:
    found = replicas(yaml.safe_dump(example("static")), json=False)
    assert [(each.url, each.weight) for each in found] == [("http://10.0.0.5:8000", 1.0), ("http://10.0.0.6:8000", 2.0)]


def test_no_right_is_asked_for_that_is_not_used() -> None:
    """The source sends GETs for lists and watches of EndpointSlices, and nothing else (the fake API server refuses the rest)."""
    role, binding = yaml.safe_load_all(re.findall(r"```yaml\n(apiVersion:.*?)```", section("kubernetes"), re.DOTALL)[0])
    assert role["rules"] == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    assert role["metadata"]["namespace"] == example("kubernetes")["namespace"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
