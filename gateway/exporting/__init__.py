"""`trilemma export`: the record as files, for whoever wants to compute with it."""
