# SPDX-License-Identifier: Apache-2.0
"""Every code block of the README and of docs/ runs, in the order of its page, and prints what it says.

A block is fenced, and its language says what happens to it:

- `python` is run; all blocks of a page share their names. With `>>>` it is a doctest.
- `bash` is run: each line is a `ggdp` command, which may read from `printf '...' |` and write to `> file`.
- `console` is shown and not run: it sets the machine up. Only the programs of `SHOWN` may stand there.
- `diff`, `json` and `text` are data.

A page is run in an empty folder. One that imports a package which is not installed is skipped by its name.
"""

import ast
import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN, DATA = {"python", "bash"}, {"diff", "json", "text"}
SHOWN = (
    "pip install",
    "make",
    "git clone",
    "cd ",
    "python -m venv",
    "python docs/",
    "python benchmarks/",
    "ggdp explore",
    "#",
)


def name(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    return [(language.strip(), text) for language, text in FENCE.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_a_page_is_one_that_is_run_or_need_not_be(page):
    for language, text in blocks(page):
        if language == "console":
            assert all(line.startswith(SHOWN) for line in text.splitlines() if line), text
        else:
            assert language in RUN | DATA or language.startswith("{"), f"```{language} in {name(page)}"
    outside = FENCE.sub("", page.read_text(encoding="utf-8"))
    loose = re.findall(r"^(?:>>> .*| {4}ggdp .*| {4}import .*)$", outside, re.MULTILINE)
    assert loose == [], f"code of {name(page)} that no test runs; fence it as python or bash"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if RUN & {language for language, _ in blocks(page)}], ids=name
)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch's, on account of Opacus's hooks
@pytest.mark.filterwarnings("ignore:Secure RNG turned off")  # what Opacus's own engine says of itself
def test_the_blocks_of_a_page_run_one_after_the_other(page, ggdp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for package in sorted(
        set().union(*(imports(text) for language, text in blocks(page) if language == "python"))
    ):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    names = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            run_python(text, names, name(page))
        elif language == "bash":
            for line in text.replace("\\\n", " ").splitlines():
                run_command(line, ggdp)


def run_python(text, names, file):
    if not text.startswith(">>>"):
        exec(compile(text, file, "exec"), names)
        return
    examples = doctest.DocTestParser().get_doctest(text, names, file, file, 0)
    said = []
    failed = doctest.DocTestRunner(verbose=False).run(examples, out=said.append, clear_globs=False).failed
    names.update(examples.globs)
    assert not failed, "".join(said)


def run_command(line, ggdp):
    feeding, _, command = line.rpartition(" | ")
    command, _, file = command.partition(" > ")
    program, *words = shlex.split(command, comments=True)
    assert program == "ggdp", line
    assert not feeding or shlex.split(feeding)[0] == "printf", line
    done = ggdp(*words, stdin=shlex.split(feeding)[1] if feeding else "")
    assert done.code == 0, f"{line}\n{done.err}"
    assert done.out or file or "--out" in words or "--html" in words, line
    if file:
        Path(file).write_text(done.out, encoding="utf-8")


def imports(text):
    """The packages that a block imports."""
    if text.startswith(">>>"):
        text = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    return imported
