"""docs/configuration.md names every key with its default, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gateway.config.schema import (
    Backend,
    Believed,
    BreakerSpec,
    Caps,
    Checker,
    Config,
    Contents,
    Embeddings,
    Feedback,
    Hedge,
    Judge,
    Key,
    Learning,
    Limits,
    Logs,
    Metrics,
    Model,
    PlanSpec,
    Policy,
    Preference,
    Price,
    Queue,
    Rules,
    Section,
    Server,
    Storage,
    StrategySpec,
    Telemetry,
    Timeouts,
    Verifier,
    VirtualModel,
    Worth,
)

PAGE = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
SECTIONS: dict[str, tuple[type[Section], ...]] = {
    "server": (Server,),
    "backends": (Backend, Timeouts, BreakerSpec),
    "models": (Model, Price, Queue, Hedge),
    "embeddings": (Embeddings,),
    "policies": (Policy,),
    "strategies": (StrategySpec, Checker),
    "virtual_models": (VirtualModel, PlanSpec),
    "keys": (Key,),
    "limits": (Limits, Rules),
    "feedback": (Feedback,),
    "storage": (Storage, Contents),
    "learning": (Learning, Believed, Verifier, Judge),
    "telemetry": (Telemetry, Metrics, Logs),
}


def section(name: str) -> str:
    return PAGE.split(f"### `{name}`\n", 1)[1].split("\n##", 1)[0]


def test_every_section_has_its_place() -> None:
    assert list(SECTIONS) == re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert set(SECTIONS) == set(Config.model_fields) - {"version"}
    assert all(f"`{key}`" in section("virtual_models") for model in (Caps, Preference, Worth) for key in model.model_fields)


@pytest.mark.parametrize("name", SECTIONS)
def test_exactly_the_keys_there_are_stand_in_the_tables(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(name), re.MULTILINE)
    assert rows == [key for model in SECTIONS[name] for key in model.model_fields]


@pytest.mark.parametrize("name", SECTIONS)
def test_defaults_are_right(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section(name), re.MULTILINE)
    written = [yaml.safe_load(text[1:-1]) if re.fullmatch(r"`[^`]+`", text) else text for _, text in rows]
    fields = [(key, field) for model in SECTIONS[name] for key, field in model.model_fields.items()]
    for (key, field), default in zip(fields, written, strict=True):
        if default == "required":
            assert field.is_required()
        elif isinstance(field.default, (bool, int, float, list, dict)) or field.default:
            if not isinstance(field.default, Section):
                assert default == field.default, f"{name}.{key}"
        else:
            assert not field.is_required()


def test_examples_fit_together() -> None:
    """Each section's example, put into one file."""
    blocks = [block for name in SECTIONS for block in re.findall(r"```yaml\n(.*?)```", section(name), re.DOTALL)]
    assert len(blocks) == len(SECTIONS)
    values = yaml.safe_load("version: 1\n" + "".join(blocks).replace("${WEB_KEY_SHA256}", "a" * 64))
    Config.model_validate(values)
