# SPDX-License-Identifier: Apache-2.0
"""What the site needs beyond Sphinx: entries of public names, the commands, links to names, and two checks.

- `{api}` documents public names of a module, one name a line.
- `{commands}` documents every `ggdp` command from its own help.
- Inline code that is a public name becomes a link to its entry.
- A page that is in no section, and a public name without an entry, are errors that say what to do.
"""

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

_LOG = logging.getLogger(__name__)

DOCUMENTED = ("ggdp", "ggdp.torch", "ggdp.opacus", "ggdp.selection", "ggdp.prv", "ggdp.dp_accounting")
"""The modules of which every public name has an entry. That of `ggdp.jax` is written by hand: `make docs`
does not install JAX."""


class Api(SphinxDirective):
    """The entries of public names: the argument is their module, the content lists them."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Hand the names to autodoc, each as what it is."""
        module = importlib.import_module(self.arguments[0])
        lines = ["```{eval-rst}"]
        for name in " ".join(self.content).split():
            _entries(self.env).add(f"{module.__name__}.{name}")
            lines += [f".. auto{_kind(getattr(module, name))}:: {module.__name__}.{name}", ""]
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))


def _kind(thing: object) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) else "data"


class Commands(SphinxDirective):
    """Every command: what it does, an example, its options; read from the program itself."""

    def run(self) -> list[nodes.Node]:
        """One section a command."""
        import typer

        from ggdp.cli import app

        group: Any = typer.main.get_command(app)
        context = group.make_context("ggdp", [], resilient_parsing=True)
        return [
            _command(name, group.get_command(context, name), context) for name in group.list_commands(context)
        ]


def _command(name: str, command: Any, parent: Any) -> nodes.section:
    section = nodes.section(ids=[f"ggdp-{name}"], names=[f"ggdp {name}"])
    section += nodes.title(text=f"ggdp {name}")
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        says, example, call = paragraph.partition("Example: ")
        if says.strip():
            section += _help_text(says)
        if example:
            code = " ".join(call.split())
            section += nodes.literal_block(code, code, language="bash")
    context = command.make_context(f"ggdp {name}", [], parent=parent, resilient_parsing=True)
    options = nodes.definition_list()
    for parameter in command.params:
        called, means = parameter.get_help_record(context) or (
            parameter.make_metavar(context),
            getattr(parameter, "help", None) or "",
        )
        term = nodes.term("", "", nodes.literal(text=" ".join(called.split())))
        options += nodes.definition_list_item("", term, nodes.definition("", _help_text(means)))
    section += options
    return section


def _help_text(text: str) -> nodes.paragraph:
    """A paragraph in which options are set as code."""
    parts = re.split(r"((?<!\S)--[a-z][\w-]*)", " ".join(text.split()))
    inline = [nodes.literal(text=part) if part.startswith("--") else nodes.Text(part) for part in parts]
    return nodes.paragraph("", "", *inline)


_PARTS = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"[|*\\]|(?<=\w)_(?!\w)")


def protect_plain_text(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep the bars, stars and underscores of docstrings, which are plain text with names in backticks."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...", ":", "..")):
            continue
        indent, bullet, rest = re.match(r"(\s*)([*-] )?(.*)", line).groups()  # type: ignore[union-attr]
        parts = _PARTS.split(rest)
        parts[::2] = [
            re.sub(r"([|*\\])|(?<=\w)_(?!\w)", lambda found: "\\" + found[0], one) for one in parts[::2]
        ]
        lines[number] = f"{indent}{bullet or ''}{''.join(parts)}"


_LINK = re.compile(r"(?<=\]\()([^):#\s]+)(#[^)\s]*)?(?=\))")
_STANDS_FOR = re.compile(r"```\{include\} (\S+)\n```\n")


def resolve_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links between files of the repository lead to the pages of the site.

    A page that is one `{include}` stands for a file outside docs: its text is that of the file, links in it
    are relative to the file, and links to the file lead to the page.
    """
    pages = {_file_of(app, one): one for one in app.env.found_docs}
    file, at = _file_of(app, page), Path(app.env.doc2path(page)).parent
    if _STANDS_FOR.fullmatch(source[0]):
        source[0] = file.read_text(encoding="utf-8")

    def resolved(link: re.Match[str]) -> str:
        target = (file.parent / link[1]).resolve()
        if target in pages:
            return f"/{pages[target]}.md{link[2] or ''}"
        return os.path.relpath(target, at) + (link[2] or "") if target.exists() else link[0]

    source[0] = _LINK.sub(resolved, source[0])


def _file_of(app: Sphinx, page: str) -> Path:
    path = Path(app.env.doc2path(page))
    outside = _STANDS_FOR.fullmatch(path.read_text(encoding="utf-8"))
    return (path.parent / outside[1] if outside else path).resolve()


class LinkNames(SphinxTransform):
    """Inline code of a page that is a public name becomes a link to its entry."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Replace `Bounds` and `ggdp.epsilon` by references; a plain `epsilon` may be an argument."""
        ours = set(importlib.import_module("ggdp").__all__)
        for code in list(self.document.findall(nodes.literal)):
            text = code.astext().removesuffix("()")
            name = text.removeprefix("ggdp.")
            plain_word = name.islower() and "_" not in name
            inside = any(
                isinstance(code.parent, kind)
                for kind in (nodes.reference, nodes.title, addnodes.pending_xref)
            )
            if name not in ours or inside or (plain_word and not text.startswith("ggdp.")):
                continue
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=f"ggdp.{name}", refexplicit=True, refwarn=False
            )
            link["refdoc"] = self.env.docname
            code.replace_self(link)
            link += code


def _entries(env: BuildEnvironment) -> set[str]:
    if not hasattr(env, "ggdp_entries"):
        env.ggdp_entries = set()  # type: ignore[attr-defined]
    return env.ggdp_entries  # type: ignore[attr-defined,no-any-return]


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Tell pages that are in no section, and public names without an entry."""
    included = {page for pages in env.toctree_includes.values() for page in pages}
    for page in sorted(env.found_docs - included - {"index"}):
        _LOG.warning(
            "docs/%s.md is in no section: add it to the toctree of docs/start/index.md (lessons), "
            "docs/how-to/index.md (tasks), docs/explanations/index.md (why, and proofs) or "
            "docs/reference/index.md (facts)",
            page,
        )
    for module in DOCUMENTED:
        public = {f"{module}.{name}" for name in importlib.import_module(module).__all__} - {
            "ggdp.__version__"
        }
        for name in sorted(public - _entries(env)):
            if not _has_an_entry_elsewhere(name, env):
                _LOG.warning(
                    "%s is public and has no entry: add its name to an {api} block under docs/reference", name
                )


def _has_an_entry_elsewhere(name: str, env: BuildEnvironment) -> bool:
    """Whether the same thing has an entry under another module's name."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    return any(
        getattr(importlib.import_module(other.rpartition(".")[0]), other.rpartition(".")[2]) is thing
        for other in _entries(env)
        if other.rpartition(".")[2] == last
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Join Sphinx."""
    app.add_directive("api", Api)
    app.add_directive("commands", Commands)
    app.add_transform(LinkNames)
    app.connect("autodoc-process-docstring", protect_plain_text, priority=100)
    app.connect("source-read", resolve_links)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
