"""Encoders that a test can work out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.values.prompt import Prompt


@dataclass(frozen=True)
class Letters:
    """How often each of these letters occurs, over all turns."""

    letters: str = "abc"
    name: str = "letters-1"
    slow: bool = False

    @property
    def dim(self) -> int:
        return len(self.letters)

    def encode(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        text = "".join(turn.text for turn in prompt.turns)
        return np.array([text.count(letter) for letter in self.letters], dtype=np.float32)
