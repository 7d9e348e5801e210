# SPDX-License-Identifier: Apache-2.0
"""`python -m ggdp` is the command `ggdp`."""

from ggdp.cli import main

if __name__ == "__main__":
    main()
