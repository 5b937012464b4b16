from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gateway.config.load import Loaded, parse
from gateway.config.source import filled, fresh_secrets, holds_secrets, masked
from gateway.config.tree import Entries, Mark, compose

SECRET = "s3cr3t-0123456789"
ENV = {"NAME": "from-the-environment", "URL": "postgresql://u:from-the-environment@h/d", "PW": "from-the-environment"}
EMBEDDINGS = "embeddings: {{e: {{url: http://e, model: m, dimensions: 2, key: {}}}}}"
HEAD = "version: 1\nkeys: [{name: a, sha256: " + "ab" * 32 + "}]\n"


def loaded_from(rest: str, env: Mapping[str, str] = ENV) -> Loaded:
    if "backends:" not in rest:
        rest += "\nbackends: {b: {url: http://h, models: {m: m}}}"
    return parse(HEAD + rest + "\n", env)


def with_key(written: str) -> str:
    return f"backends:\n  b:\n    url: http://h\n    key: {written}\n    models: {{m: m}}"


def with_args(written: str) -> str:
    return f"backends:\n  b:\n    launch: vllm\n    model: x\n    args: {written}\n    models: {{m: m}}"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (with_key(SECRET), with_key('"***"')),
        (with_key(f'"{SECRET}" # ö'), with_key('"***" # ö')),
        (with_key(f"&k '{SECRET}'"), with_key('&k "***"')),
        (with_key(f"!!str {SECRET}"), with_key('!!str "***"')),
        (with_key(f"|-\n      {SECRET}"), with_key('"***"')),
        (with_key(f"${{NAME:-{SECRET}}}"), with_key('"***"')),
        (with_key(f"Bearer-${{NAME}}-{SECRET}"), with_key('"***"')),
        (with_key("ä") + "  # näher", with_key('"***"') + "  # näher"),
        (f"server: {{secret: {SECRET}}}", 'server: {secret: "***"}'),
        (EMBEDDINGS.format(SECRET), EMBEDDINGS.format('"***"')),
        (f"learning: {{verifier: {{url: 'http://v', key: {SECRET}}}}}", "learning: {verifier: {url: 'http://v', key: \"***\"}}"),
        (
            f"strategies: {{s: {{type: best_of_n, verifier: {{url: 'http://v', key: {SECRET}}}}}}}",
            "strategies: {s: {type: best_of_n, verifier: {url: 'http://v', key: \"***\"}}}",
        ),
        (f"storage: {{url: 'postgresql://u:{SECRET}@h/d'}}", 'storage: {url: "postgresql://u:***@h/d"}'),
        (f"storage: {{url: 'postgresql://u:${{PW:-a/b:{SECRET}}}@h/d'}}", 'storage: {url: "postgresql://u:***@h/d"}'),
        (f"storage: {{url: 'postgresql://${{NAME:-u}}:{SECRET}@h/d'}}", 'storage: {url: "postgresql://${NAME:-u}:***@h/d"}'),
        (f"storage: {{url: 'postgresql://${{NAME:-u:{SECRET}}}@h/d'}}", 'storage: {url: "postgresql://***@h/d"}'),
        (f"storage: {{url: '${{URL:-postgresql://u:{SECRET}@h/d}}'}}", 'storage: {url: "${URL:-postgresql://u:***@h/d}"}'),
        (with_args(f"[--api-key, {SECRET}, --x]"), with_args('[--api-key, "***", --x]')),
        (with_args(f"[--hf-token={SECRET}]"), with_args('["--hf-token=***"]')),
        (with_args(f"[-hft, {SECRET}]"), with_args('[-hft, "***"]')),
    ],
)
def test_a_secret_in_plain_text_is_masked_and_nothing_else_changes(written: str, shown: str) -> None:
    loaded = loaded_from(written)

    assert holds_secrets(loaded)
    assert masked(loaded) == loaded.text.replace(written, shown)
    assert SECRET not in masked(loaded)


@pytest.mark.parametrize(
    "written",
    [
        with_key("${NAME}"),
        with_key('"${NAME}"'),
        with_key("${NAME:-}"),
        with_key("null"),
        with_key("~"),
        "server: {secret: '${NAME}'}",
        "storage: {url: '${URL}'}",
        "storage: {url: 'postgresql://u:${PW}@h/d'}",
        "storage: {url: 'postgresql://${NAME}:${PW}@h/d'}",
        "storage: {url: 'postgresql://u@h/d'}",
        "storage: {url: '${NONE:-sqlite:///d.db}'}",
        "storage: {url: 'postgresql:///d?host=/tmp/a'}",
        with_args("[--max-num-batched-tokens, '8192', --tokenizer=x, --api-key, '${NAME}', '--hf-token=${NAME}']"),
        with_args("[--api-key, --verbose]"),
    ],
)
def test_a_reference_is_no_secret(written: str) -> None:
    loaded = loaded_from(written)

    assert not holds_secrets(loaded)
    assert masked(loaded) == loaded.text


def test_a_secret_is_masked_wherever_it_stands() -> None:
    loaded = loaded_from(with_key("${NAME}") + f"\n# it is {ENV['NAME']}", ENV)

    assert holds_secrets(loaded)
    assert ENV["NAME"] not in masked(loaded)


def test_a_secret_behind_an_alias_is_masked_at_its_anchor() -> None:
    text = f"backends:\n  a: {{url: http://a, models: {{m: m}}, key: &k {SECRET}}}\n  b: {{url: http://b, models: {{n: n}}, key: *k}}"

    assert masked(loaded_from(text)) == loaded_from(text).text.replace(SECRET, '"***"')


def test_a_secret_that_is_merged_is_masked() -> None:
    text = f"backends:\n  a: &a {{url: http://a, models: {{m: m}}, key: {SECRET}}}\n  b: {{<<: *a}}"

    assert SECRET not in masked(loaded_from(text))


def test_a_worker_s_configuration_comes_without_its_tree() -> None:
    short = "sh0rt"
    loaded = replace(loaded_from(with_key(short)), document=Entries({}, Mark(1, 1), 1))

    assert holds_secrets(loaded)
    assert short not in masked(loaded)


@pytest.mark.parametrize(
    "written",
    [with_key(SECRET), with_key(f'"{SECRET}"'), with_args(f"[--hf-token={SECRET}]"), f"storage: {{url: 'postgresql://u:{SECRET}@h/d'}}"],
)
def test_what_is_shown_can_be_given_back(written: str) -> None:
    """Its masks stand for the secrets that are there."""
    before = loaded_from(written)
    text = masked(before) + "limits: {failed_keys_per_minute: 5}\n"
    root, _ = compose(text)

    given = filled(text, root, before)

    after = parse(given, ENV)
    assert after.config.model_copy(update={"limits": before.config.limits}) == before.config
    assert after.config.limits.failed_keys_per_minute == 5
    assert fresh_secrets(compose(given)[0], before) == []


Refused = Callable[[str, str], list[str]]


@pytest.fixture
def refused() -> Refused:
    def refused(before: str, after: str) -> list[str]:
        root, _ = compose(HEAD + after)
        return [f"{'.'.join(map(str, each.loc))}: {each.message}" for each in fresh_secrets(root, loaded_from(before))]

    return refused


def test_a_new_secret_is_refused(refused: Refused) -> None:
    (found,) = refused(with_key("${NAME}"), with_key(SECRET))

    assert found.startswith("backends.b.key: a secret in plain text is not taken: write ${NAME}")
    assert "`key_file`" in found
    assert SECRET not in found


def test_another_secret_is_a_new_one(refused: Refused) -> None:
    assert len(refused(with_key(SECRET), with_key(SECRET + "1"))) == 1


def test_a_secret_at_another_place_is_a_new_one(refused: Refused) -> None:
    assert len(refused(with_key(SECRET), with_key(SECRET).replace("  b:", "  c:"))) == 1


def test_a_mask_for_nothing_is_refused(refused: Refused) -> None:
    (found,) = refused(with_key("${NAME}"), with_key('"***"'))

    assert found == "backends.b.key: `***` stands for the secret that is here now, and there is none"


def test_what_is_there_already_stays(refused: Refused) -> None:
    assert refused(with_key(SECRET), with_key(f'"{SECRET}"')) == []
