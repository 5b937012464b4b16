from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.store.lazily import Lazily

LOADED = """
import sys
from gateway.store.lazily import Lazily
colours = Lazily("colorsys")
print("colorsys" in sys.modules, colours.ONE_THIRD, "colorsys" in sys.modules)
"""


def test_a_module_is_loaded_when_something_of_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "False 0.3333333333333333 True\n"


def test_what_is_not_in_it() -> None:
    with pytest.raises(AttributeError):
        _ = Lazily("colorsys").colour
    with pytest.raises(ModuleNotFoundError):
        _ = Lazily("gateway.store.nothing").colour
