"""The engine's state as /metrics shows it: true counters by vLLM's names, a prefix cache, running sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from gateway.mock.generation import Generation
from gateway.mock.prefix_cache import BLOCK_TOKENS, PrefixCache, block_names, tokens_saved

_HELP: Mapping[str, tuple[str, str]] = {
    "num_requests_running": ("gauge", "Number of requests in model execution batches."),
    "num_requests_waiting": ("gauge", "Number of requests waiting to be processed."),
    "num_requests_waiting_by_reason": ("gauge", "Number of waiting requests by reason."),
    "kv_cache_usage_perc": ("gauge", "KV-cache usage. 1 means 100 percent usage."),
    "prefix_cache_queries_total": ("counter", "Prefix cache queries, in terms of number of queried tokens."),
    "prefix_cache_hits_total": ("counter", "Prefix cache hits, in terms of number of cached tokens."),
    "num_preemptions_total": ("counter", "Cumulative number of preemption from the engine."),
    "prompt_tokens_total": ("counter", "Number of prefill tokens processed."),
    "prompt_tokens_cached_total": ("counter", "Number of cached prompt tokens (local + external)."),
    "generation_tokens_total": ("counter", "Number of generation tokens processed."),
    "request_success_total": ("counter", "Count of successfully processed requests."),
    "cache_config_info": ("gauge", "Information of the LLMEngine CacheConfig"),
}


class Engine:
    """Counts of one engine. Sequences above `max_num_seqs` count as waiting, though none is really held back."""

    def __init__(self, model: str, max_num_seqs: int, kv_tokens: int) -> None:
        self._model = model
        self._max_num_seqs = max_num_seqs
        self._blocks = kv_tokens // BLOCK_TOKENS
        self._cache = PrefixCache(self._blocks)
        self._sequences = 0
        self._used_tokens = 0
        self._counters: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()

    def cached(self, prompt: Sequence[str]) -> int:
        """How many tokens of the prompt the prefix cache saves; the prompt is in it from now on."""
        hits = tokens_saved(self._cache.use(block_names(prompt)), len(prompt))
        self._counters["prefix_cache_queries_total"] += len(prompt)
        self._counters["prefix_cache_hits_total"] += hits
        return hits

    @contextmanager
    def running(self, generation: Generation) -> Iterator[None]:
        """The sequences of a request are in the engine; leaving by an exception counts them as aborted."""
        sequences, tokens = len(generation.choices), generation.prompt_tokens + generation.completion_tokens
        self._sequences += sequences
        self._used_tokens += tokens
        self._counters["prompt_tokens_total"] += generation.prompt_tokens
        self._counters["prompt_tokens_cached_total"] += generation.cached
        try:
            yield
        except BaseException:
            self._finished["abort"] += sequences
            raise
        else:
            self._counters["generation_tokens_total"] += generation.completion_tokens
            self._finished.update("length" if choice.finish_reason == "length" else "stop" for choice in generation.choices)
        finally:
            self._sequences -= sequences
            self._used_tokens -= tokens

    def exposition(self) -> bytes:
        """The text of /metrics."""
        running = min(self._sequences, self._max_num_seqs)
        waiting = self._sequences - running
        values: dict[str, list[tuple[str, float]]] = {name: [("", float(self._counters[name]))] for name in _HELP}
        values["num_requests_running"] = [("", running)]
        values["num_requests_waiting"] = [("", waiting)]
        values["num_requests_waiting_by_reason"] = [('reason="capacity"', waiting), ('reason="deferred"', 0)]
        values["kv_cache_usage_perc"] = [("", min(1.0, self._used_tokens / (self._blocks * BLOCK_TOKENS)))]
        values["cache_config_info"] = [(f'block_size="{BLOCK_TOKENS}",num_gpu_blocks="{self._blocks}"', 1)]
        reasons = ("stop", "length", "abort", "error", "repetition")
        values["request_success_total"] = [(f'finished_reason="{why}"', self._finished[why]) for why in reasons]
        lines = []
        for name, (kind, text) in _HELP.items():
            lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"]
            for more, value in values[name]:
                labels = sorted(['engine="0"', f'model_name="{self._model}"', *filter(None, more.split(","))])
                lines.append(f"vllm:{name}{{{','.join(labels)}}} {float(value)}")
        return ("\n".join(lines) + "\n").encode()
