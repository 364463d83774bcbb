"""``python -m reveal_bench``: the command line."""

from reveal_bench.cli import main

main()
