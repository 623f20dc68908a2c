"""python -m hello_react "question": see `cli`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
