"""Entry point of ``python -m reveal_bench``, which runs the command line."""

from reveal_bench.cli import main

main()
