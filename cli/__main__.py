"""`python -m trimtab.cli` is the trimtab command."""

import sys

from trimtab.cli.main import main

sys.exit(main())
