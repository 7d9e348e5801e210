# SPDX-License-Identifier: Apache-2.0
"""`python -m ggdp` is the command `ggdp`."""

import sys


def main() -> None:
    """Run the command. Its imports take half a second, and an interrupt may come then too."""
    try:
        from ggdp.cli import main as run
    except KeyboardInterrupt:
        print("ggdp: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
