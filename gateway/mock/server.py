"""The mock engine: a scriptable, wire-faithful vLLM on a real socket, for tests and load.

async with MockBackend(models=["m"]) as mock:
    mock.script(Behaviour(tokens=("Hel", "lo")), Behaviour(reset_after_events=3))
    ...                                              # a client talks to mock.url
    await mock.wait_for(lambda m: m.aborted == 1)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import msgspec
import orjson

from gateway.mock import answers, catalogue, errors
from gateway.mock.behaviour import BeforeHeaders, Behaviour, Script, read_script
from gateway.mock.connection import Answer, Connection, for_ever
from gateway.mock.events import Events
from gateway.mock.generation import Generation, generate, prompts, render
from gateway.mock.metrics import Engine
from gateway.mock.pace import Pace
from gateway.mock.recorder import Received, Recorder
from gateway.mock.tokens import Vocabulary

_STREAM = "text/event-stream; charset=utf-8"
_Handler = Callable[[Answer, Received, Behaviour], Awaitable[None]]


class MockBackend:
    """A mock engine in this event loop.

    `default` answers what the script does not; `port` 0 takes a free one; `key` demands a bearer key below /v1/;
    `keep_alive_s` is how long an idle connection stays open; the newest `keep` requests are remembered; the prefix cache
    has room for `kv_tokens` tokens (one block of 32 at least).
    """

    def __init__(
        self,
        models: Sequence[str] = ("mock-model",),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        default: Behaviour | None = None,
        script: Iterable[Behaviour] = (),
        key: str | None = None,
        max_model_len: int = 4096,
        max_num_seqs: int = 256,
        kv_tokens: int = 46_592,
        keep_alive_s: float = 5.0,
        keep: int = 10_000,
    ) -> None:
        self.models = tuple(models)
        self.max_model_len = max_model_len
        self._host, self._port, self._key, self._keep_alive_s = host, port, key, keep_alive_s
        self._script = Script(default or Behaviour())
        self._script.add(script)
        self._recorder = Recorder(keep)
        self._engine = Engine(self.models[0], max_num_seqs, kv_tokens)
        self._vocabulary = Vocabulary()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], _Handler] = {
            ("POST", "/v1/chat/completions"): partial(self._generate, chat=True),
            ("POST", "/v1/completions"): partial(self._generate, chat=False),
            ("POST", "/v1/embeddings"): self._embeddings,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
        }

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Listens. Raises OSError if it cannot."""

        def connection() -> Connection:
            return Connection(self._recorder, self._handle, self._keep_alive_s, self._connections, lambda: self._server is None)

        self._server = await asyncio.get_running_loop().create_server(connection, self._host, self._port, backlog=4096)
        self._port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stops listening and ends every connection, answered or not."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = [connection.task for connection in self._connections]
        for connection in list(self._connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()

    # -- what tests read and say

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    @property
    def requests(self) -> list[Received]:
        """Everything received, oldest first."""
        return self._recorder.requests

    def requests_to(self, path: str) -> list[Received]:
        return [request for request in self.requests if request.path == path]

    @property
    def connections(self) -> int:
        """Open client connections."""
        return self._recorder.connections

    @property
    def opened(self) -> int:
        """Client connections ever opened."""
        return self._recorder.opened

    @property
    def in_flight(self) -> int:
        """Requests received and neither answered nor aborted."""
        return self._recorder.in_flight

    @property
    def total(self) -> int:
        """Requests ever received (since the last reset)."""
        return self._recorder.total

    @property
    def aborted(self) -> int:
        """Requests whose client left before the answer was complete."""
        return self._recorder.aborted

    def script(self, *behaviours: Behaviour, default: Behaviour | None = None) -> None:
        """Queues behaviours for the next requests; `default` replaces what answers the others."""
        self._script.add(behaviours)
        if default is not None:
            self._script.default = default

    def reset(self) -> None:
        """Forgets the queue and the records; the default stays."""
        self._script.clear()
        self._recorder.clear()

    async def wait_for(self, condition: Callable[[MockBackend], bool], within_s: float = 10.0) -> None:
        """Waits until the condition holds, looking at each change of the records. Else raises AssertionError."""
        try:
            async with asyncio.timeout(within_s):
                while not condition(self):
                    await self._recorder.next_change()
        except TimeoutError:
            state = [request.as_json() for request in self.requests[-5:]]
            raise AssertionError(f"not within {within_s} s; {self._recorder.gauges()}; last requests: {state}") from None

    # -- requests

    async def _handle(self, request: Received, connection: Connection) -> None:
        if request.control:
            await self._control(request, connection)
            return
        if self._key is not None and request.path.startswith("/v1/") and request.header("authorization") != f"Bearer {self._key}":
            await Answer(connection, request, Behaviour()).whole(401, b'{"error":"Unauthorized"}')
            return
        behaviour = self._script.take(request.method, request.path)
        answer = Answer(connection, request, behaviour)
        if behaviour.never_answer:
            await for_ever()
        await asyncio.sleep(behaviour.delay_headers_s)
        await answer.checkpoint(BeforeHeaders)
        try:
            await self._answer(answer, request, behaviour)
        except errors.Refused as refusal:
            await answer.whole(refusal.status, refusal.body)

    async def _answer(self, answer: Answer, request: Received, behaviour: Behaviour) -> None:
        body = behaviour.verbatim
        if behaviour.raw is not None:
            await answer.raw(behaviour.raw)
        elif body is not None or behaviour.status != 200:
            if body is None:
                body = errors.error(behaviour.status, f"scripted error {behaviour.status}", "ScriptedError").body
            await answer.whole(behaviour.status, body)
        elif (route := self._routes.get((request.method, request.path))) is not None:
            await route(answer, request, behaviour)
        elif any(path == request.path for _, path in self._routes):
            raise errors.Refused(405, {"detail": "Method Not Allowed"})
        else:
            raise errors.Refused(404, {"detail": "Not Found"})

    def _model(self, body: dict[str, Any]) -> str:
        name = body.get("model") or self.models[0]
        if name not in self.models:
            raise errors.unknown_model(name, self.models)
        return str(name)

    async def _generate(self, answer: Answer, request: Received, behaviour: Behaviour, *, chat: bool) -> None:
        body = errors.parse(request.body)
        if behaviour.reject_include_usage and "stream_options" in body:
            raise errors.error(400, "Unrecognized request argument supplied: stream_options", param="stream_options")
        generation = generate(
            body,
            behaviour,
            chat=chat,
            model=self._model(body),
            limit=self.max_model_len,
            vocabulary=self._vocabulary,
            request_id=request.header("x-request-id"),
        )
        generation = replace(generation, cached=sum(map(self._engine.cached, generation.prompts)))
        with self._engine.running(generation):
            if body.get("stream") and not behaviour.ignore_stream:
                await self._stream(answer, request, generation, chat)
            else:
                pace = Pace(behaviour, self._script.default, generation.uncached)
                await pace.until(generation.steps - 1)
                await answer.whole(200, orjson.dumps(answers.chat(generation) if chat else answers.completion(generation)))

    async def _stream(self, answer: Answer, request: Received, generation: Generation, chat: bool) -> None:
        behaviour = generation.behaviour
        pace = Pace(behaviour, self._script.default, generation.uncached)
        await answer.head(200, _STREAM)
        events = Events(answer, request, behaviour)
        if behaviour.events is not None:
            steps: Iterable[list[bytes]] = ([event.encode()] for event in behaviour.events)
        else:
            steps = answers.chat_stream(generation) if chat else answers.completion_stream(generation)
        for number, step in enumerate(steps):
            await pace.until(number)
            await events.step(step)
        await events.end()

    async def _embeddings(self, answer: Answer, request: Received, behaviour: Behaviour) -> None:
        body = errors.parse(request.body)
        model = self._model(body)
        inputs = prompts({"prompt": body.get("input")}, self._vocabulary)
        await Pace(behaviour, self._script.default, sum(map(len, inputs))).until(0)
        await answer.whole(200, orjson.dumps(catalogue.embeddings(body, model, inputs, request.header("x-request-id"))))

    async def _models(self, answer: Answer, *_: object) -> None:
        await answer.whole(200, orjson.dumps(catalogue.models(self.models, self.max_model_len)))

    async def _health(self, answer: Answer, *_: object) -> None:
        await answer.whole(200, b"", None)

    async def _version(self, answer: Answer, *_: object) -> None:
        await answer.whole(200, b'{"version":"0.32.0"}')

    async def _load(self, answer: Answer, *_: object) -> None:
        await answer.whole(200, orjson.dumps({"server_load": self.in_flight - 1}))

    async def _metrics(self, answer: Answer, *_: object) -> None:
        await answer.whole(200, self._engine.exposition(), "text/plain; version=1.0.0; charset=utf-8")

    async def _tokenize(self, answer: Answer, request: Received, _: Behaviour) -> None:
        body = errors.parse(request.body)
        self._model(body)
        pieces = render(body) if "messages" in body else prompts(body, self._vocabulary)[0]
        result = {"count": len(pieces), "max_model_len": self.max_model_len, "tokens": self._vocabulary.ids(pieces)}
        await answer.whole(200, orjson.dumps({**result, "token_strs": pieces if body.get("return_token_strs") else None}))

    async def _detokenize(self, answer: Answer, request: Received, _: Behaviour) -> None:
        body = errors.parse(request.body)
        self._model(body)
        await answer.whole(200, orjson.dumps({"prompt": "".join(map(self._vocabulary.piece, body.get("tokens") or []))}))

    # -- control

    async def _control(self, request: Received, connection: Connection) -> None:
        """POST /mock/script (a JSON list), GET /mock/requests, POST /mock/reset."""
        answer = Answer(connection, request, Behaviour())
        match request.method, request.path:
            case "POST", "/mock/script":
                try:
                    behaviours = read_script(request.body)
                except msgspec.DecodeError as problem:
                    await answer.whole(400, orjson.dumps({"error": str(problem)}))
                    return
                self.script(*behaviours)
                await answer.whole(200, orjson.dumps({"queued": len(behaviours)}))
            case "GET", "/mock/requests":
                records = [record.as_json() for record in self.requests]
                await answer.whole(200, orjson.dumps({**self._recorder.gauges(), "requests": records}))
            case "POST", "/mock/reset":
                self.reset()
                await answer.whole(200, b"{}")
            case _:
                await answer.whole(404, b'{"detail":"Not Found"}')
