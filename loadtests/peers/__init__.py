"""The same work through other gateways, beside nginx: what each takes of a CPU (docs/benchmarks.md)."""
