"""Owns `python -m gateway`: the same as `posthouse`."""

import sys

from gateway.cli.main import main

sys.exit(main())
