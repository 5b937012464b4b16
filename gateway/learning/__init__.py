"""What policies learn: outcomes come out of the database, are folded into states, and go to whoever decides."""
