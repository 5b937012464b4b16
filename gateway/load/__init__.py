"""Load and faults: open-loop traffic against a gateway whose backends misbehave on a time line, and a report of what came of it."""
