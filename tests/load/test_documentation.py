"""docs/load.md names every figure and every fault, and its example can be used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import yaml

from gateway.load.faults import AnyFault
from gateway.load.figures import OF_REQUESTS, OF_RUN
from gateway.load.report import unknown_figures
from gateway.load.scenario import Scenario

PAGE = (Path(__file__).parents[2] / "docs/load.md").read_text()
SCENARIOS = Path(__file__).parents[2] / "loadtests/scenarios"


def test_every_figure_is_explained() -> None:
    patterns = [re.escape(name).replace(r"\*", r"\w+") for name in re.findall(r"`([a-z0-9_*]+)`", PAGE)]

    assert [name for name in (*OF_REQUESTS, *OF_RUN) if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []


def test_every_fault_is_named() -> None:
    assert [fault.__struct_config__.tag for fault in get_args(AnyFault) if f"`{fault.__struct_config__.tag}`" not in PAGE] == []


def test_every_scenario_is_named() -> None:
    assert [file.stem for file in SCENARIOS.glob("*.yaml") if f"`{file.stem}`" not in PAGE] == []


def test_the_example_is_a_scenario() -> None:
    example = msgspec.convert(yaml.safe_load(PAGE.split("```yaml\n")[1].split("```")[0]), Scenario)

    assert unknown_figures(example) == []
