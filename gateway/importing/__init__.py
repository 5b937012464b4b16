"""Configurations of other gateways, made into Trilemma's: what fits is mapped, everything else is told."""
