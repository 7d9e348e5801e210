# SPDX-License-Identifier: Apache-2.0
"""Build the explorer as a static page: python docs/explorer_page.py FOLDER

marimo puts the notebook into a page that runs Python in the reader's browser, by Pyodide. ggdp itself is
built as a wheel and lies beside the page, in public/wheels. Pyodide, NumPy, SciPy, Matplotlib and the pure
Python packages that ggdp requires are loaded from the network when the page is opened. No test does that;
tests check that the accounting runs without the modules that Pyodide lacks. marimo needs uv to build the page
(pip install uv). Serve the folder by HTTP: a browser does not load such a page from a file.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
APP = ROOT / "src/ggdp/reporting/explorer/app.py"
HEADER = """# /// script
# dependencies = ["marimo", "numpy", "scipy", "matplotlib", "ggdp @ ./{wheel}"]
# ///
"""


def build(folder: Path) -> None:
    """Write index.html and all that it needs, but for what it loads from the network, into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            scratch,
            str(ROOT),
        ]
        subprocess.run(wheel, check=True)
        (built,) = Path(scratch).glob("ggdp-*.whl")
        page = Path(scratch) / "explorer.py"
        page.write_text(HEADER.format(wheel=built.name) + APP.read_text(encoding="utf-8"), encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        export = [sys.executable, "-m", "marimo", "export", "html-wasm", str(page), "--force", "--no-sandbox"]
        subprocess.run([*export, "--mode", "run", "--output", str(folder / "index.html")], check=True)
        (folder / "CLAUDE.md").unlink(missing_ok=True)  # a note of marimo's own that lies among its assets


if __name__ == "__main__":
    build(Path(sys.argv[1]))
