"""Runs the command line by `python -m kernelwright`, and as the command `kernelwright`."""

import sys


def main() -> None:
    """Loads the command line and runs it to its exit. Ctrl-C during the loading is no traceback either."""
    try:
        from kernelwright.cli import main as run
    except KeyboardInterrupt:
        print("error: interrupted before the work began", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
