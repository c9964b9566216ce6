"""Run the command line: ``python -m skdpfair``."""

from skdpfair.cli import main

if __name__ == "__main__":
    main()
