from __future__ import annotations

import hashlib
import json

from gateway.config.canonical import digest, public
from gateway.config.load import parse
from gateway.config.schema import Backend, Config, Storage


def config(**sections: object) -> Config:
    backends = {"a": {"url": "http://a", "models": {"m": "m"}}, "b": {"url": "http://b", "models": {"m": "m"}}}
    return Config.model_validate({"version": 1, "backends": backends, **sections})


def test_the_digest_does_not_depend_on_the_writing(minimal: str) -> None:
    written_out = "# a comment\n" + minimal + "server: {port: 8080}\nstorage:\n  url: ''\n"
    assert parse(written_out, {}).hash == parse(minimal, {}).hash


def test_the_digest_depends_on_the_meaning(minimal: str) -> None:
    assert parse(minimal + "server: {port: 8081}\n", {}).hash != parse(minimal, {}).hash


def test_the_digest_keeps_the_order_of_names() -> None:
    turned = config(backends=dict(reversed(config().model_dump()["backends"].items())))
    assert digest(turned) != digest(config())


def test_the_digest_is_the_sha256_of_the_public_form() -> None:
    text = json.dumps(public(config()), separators=(",", ":"))
    assert digest(config()) == hashlib.sha256(text.encode()).hexdigest()


def test_a_secret_counts_by_being_there_only() -> None:
    def with_key(key: str | None) -> str:
        return digest(config(backends={"a": {"url": "http://a", "models": {"m": "m"}, "key": key}}))

    assert with_key("one") == with_key("two")
    assert with_key("one") != with_key(None)


def test_nothing_secret_is_public() -> None:
    args = ["--api-key", "SECRET1", "--hf-token=SECRET2", "--key", "--verbose", "--model-path", "/m"]
    backend = {"launch": "vllm", "model": "m", "models": {"m": "m"}, "key": "SECRET3", "args": args}
    shown = public(
        config(
            backends={"a": backend},
            server={"secret": "SECRET4"},
            storage={"url": "postgresql+asyncpg://user:SECRET5@db/trilemma"},
        )
    )
    assert "SECRET" not in json.dumps(shown)
    assert shown["storage"]["url"] == "postgresql+asyncpg://user:**********@db/trilemma"
    assert shown["backends"]["a"]["args"] == [
        "--api-key", "**********", "--hf-token=**********", "--key", "--verbose", "--model-path", "/m",
    ]  # fmt: skip


def test_flags_that_only_sound_like_secrets_count() -> None:
    def with_args(*args: str) -> str:
        return digest(config(backends={"a": {"launch": "vllm", "model": "m", "models": {"m": "m"}, "args": list(args)}}))

    assert with_args("--max-num-batched-tokens", "1") != with_args("--max-num-batched-tokens", "2")
    assert with_args("--tokenizer=a") != with_args("--tokenizer=b")
    assert with_args("--api-key=a", "-hft", "a") == with_args("--api-key=b", "-hft", "b")


def test_nothing_secret_is_in_a_repr() -> None:
    whole = repr(config(server={"secret": "SECRET"}, storage={"url": "postgresql://u:SECRET@h/d"}))
    assert "SECRET" not in whole
    assert "SECRET" not in repr(Backend(url="http://a", models={"m": "m"}, key="SECRET"))
    assert "SECRET" not in repr(Storage(url="SECRET"))
