"""What another policy would have done, for operators: `trilemma replay`, `simulate` and `power`."""
