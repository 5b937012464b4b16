"""`python -m gateway`: the same as `trilemma`."""

import sys

from gateway.cli import main

sys.exit(main())
