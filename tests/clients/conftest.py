"""Clients as users have them, pointed at the gateway over real engines."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.support.engine import Started

ROOT = Path(__file__).parents[2]
NODE = Path(__file__).with_name("node")


@pytest.fixture
def sdk(stack: Started) -> Iterator[openai.OpenAI]:
    """The official Python SDK; it does not retry, so that every answer is seen."""
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
async def async_sdk(stack: Started) -> AsyncIterator[openai.AsyncOpenAI]:
    """The same, for asyncio."""
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def http(stack: Started) -> Iterator[httpx.Client]:
    """A plain HTTP client with the key."""
    with httpx.Client(base_url=stack.url, headers=stack.headers, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder with the official Node SDK, at the version of the lock file; installed once and kept for later runs."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed; the Node SDK is not tried")
    lock = (NODE / "package-lock.json").read_bytes()
    home = ROOT / ".trilemma" / "node" / hashlib.sha256(lock).hexdigest()[:16]
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent))
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(NODE / name, draft)
        installed = subprocess.run(["npm", "ci"], cwd=draft, capture_output=True, text=True, timeout=300, check=False)
        assert installed.returncode == 0, installed.stdout + installed.stderr
        draft.replace(home)
    shutil.copy(NODE / "ask.mjs", home)
    return home
