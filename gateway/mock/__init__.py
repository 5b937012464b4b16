"""A scriptable, wire-faithful mock of vLLM, for tests and load."""

from gateway.mock.behaviour import Behaviour, Say, ToolCall
from gateway.mock.recorder import Received
from gateway.mock.server import MockBackend

__all__ = ("Behaviour", "MockBackend", "Received", "Say", "ToolCall")
