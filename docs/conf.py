# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the site from the Markdown pages of this folder; `make docs` runs it.

Nothing is fetched from the network, neither while the site is built nor while it is read.
"""

import gc
import sys
import tomllib
from pathlib import Path

_HERE = Path(__file__).parent
gc.set_threshold(
    100_000, 50, 100
)  # trees of pages are no garbage; to look through them took a third of the time
sys.path[:0] = [str(_HERE), str(_HERE.parent / "src")]

project = "ggdp"
author = "the ggdp contributors"
copyright = author  # Sphinx takes it by this name
version = release = tomllib.loads((_HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_extension"]
exclude_patterns = ["_build"]
suppress_warnings = ["toc.not_included"]  # site_extension tells it, and what to do

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

smartquotes = False
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_custom_sections = ["Guarantees"]
napoleon_use_ivar = True
maximum_signature_line_length = 80

html_theme = "furo"
html_title = "ggdp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
