# SPDX-License-Identifier: Apache-2.0
"""The command `ggdp`: parse, call, print; no arithmetic here.

One file for each group of commands. A command is a plain function whose parameters come from `cli.options`,
whose answer goes through `cli.output`, and which raises `ValueError` for what it refuses; it joins `app`.
Installed packages add functions of their own as commands, by entry points of the group `ggdp.commands`.
"""

import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ggdp import __version__
from ggdp.cli import (
    calibrate,
    choose,
    curve,
    demo,
    explore,
    noise,
    output,
    pate,
    privacy,
    release,
    report,
    risk,
    simulate,
)

GUESTS = "ggdp.commands"
"""The group of entry points by which other packages add commands."""

_PLAIN: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class _Commands(TyperGroup):
    """The commands of this package, and those that installed packages add.

    The latter are looked for only when a name is not one of ours, or when all commands are listed, so that no
    other command waits for their imports.
    """

    def list_commands(self, context: Any) -> list[str]:
        self._add_guests()
        return super().list_commands(context)

    def get_command(self, context: Any, name: str) -> Any:
        if name not in self.commands and not self._add_guests():
            raise ValueError(
                f"No such command {name!r}; it is not one of ggdp's own, and no installed package adds any; "
                "if ggdp itself should, install it again"
            )
        command: Any = super().get_command(context, name)
        for param in [] if command is None else command.params:
            if param.param_type_name == "argument":  # newer toolkits write a Python type behind its name
                param.display_type_rich = lambda ctx: None
        return command

    def _add_guests(self) -> bool:
        """Whether there are any."""
        found = sorted(entry_points(group=GUESTS), key=lambda point: point.name)
        for point in found:
            if point.name not in self.commands:  # ours are never replaced
                self.add_command(_guest(point), point.name)
        return bool(found)


def _guest(point: EntryPoint) -> Any:
    """The command that an entry point names; where it cannot be imported, one that says so."""
    alone = typer.Typer(**_PLAIN)
    try:
        alone.command(point.name)(point.load())
    except (ImportError, AttributeError) as error:
        everything = {"ignore_unknown_options": True, "allow_extra_args": True}
        alone.command(point.name, context_settings=everything)(_not_importable(point, error))
    return typer.main.get_command(alone)


def _not_importable(point: EntryPoint, error: Exception) -> Callable[[], None]:
    package = point.module.partition(".")[0]
    bringing = point.dist.name if point.dist is not None else package

    def refuse() -> None:
        raise ValueError(
            f"{point.name} is a command of {package}, which cannot be imported here ({error}); "
            f"install {bringing} again"
        )

    refuse.__doc__ = f"Not available here: {package} cannot be imported."
    return refuse


app = typer.Typer(
    name="ggdp",
    cls=_Commands,
    **_PLAIN,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

INTERRUPTED = 130

# Unknown options, missing values: an error of click, or of the copy of it that newer typers carry.
_CommandLineError: type[Exception] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if issubclass(kind, Exception) and kind.__name__ == "ClickException"
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ggdp {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def ggdp(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Differential privacy with Generalized Gaussian noise.

    The commands compute epsilon and delta of noise, find the noise for an epsilon, release numbers, and train
    models. Start with epsilon, calibrate and release. The density of the noise is proportional to
    exp(-(|x|/scale)^beta): beta = 1 is Laplace noise and beta = 2 is Gaussian noise.

    Example: ggdp epsilon --beta 2 --std 4 --steps 10 --delta 1e-6
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("noise")(noise.noise)
app.command("release")(release.release)
app.command("epsilon")(privacy.epsilon)
app.command("delta")(privacy.delta)
app.command("calibrate")(calibrate.calibrate)
app.command("choose")(choose.choose)
app.command("curve")(curve.curve)
app.command("risk")(risk.risk)
app.command("pate")(pate.pate)
app.command("simulate-argmax")(simulate.simulate)
app.command("demo")(demo.demo)
app.command("explore")(explore.explore)
app.command("report")(report.report)


_NAMED_OTHERWISE = {
    "max_epsilon": "--epsilon",
    "most_answers": "--answers",
    "num_classes": "--classes",
    "num_votes": "--votes",
    "target_epsilon": "--epsilon",
    "times": "--steps",
}
"""Options of arguments of the library that are called otherwise there."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 done, 2 refused (one line on stderr), 130 interrupted.

    Every error of the command line, of the library and of the file system leaves through this door.
    """
    given = sys.argv[1:] if arguments is None else arguments
    command = typer.main.get_command(app)
    if sys.stdout is None:
        sys.exit(output.refuse("standard output is closed; send it to a file or to /dev/null"))
    try:
        _refuse_repeated(command, given)
        code = _without_false_interrupts(command).main(given, prog_name="ggdp", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `head` does. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(output.refuse("interrupted", code=INTERRUPTED))
    except (
        ValueError,
        OSError,
        ArithmeticError,
        MemoryError,
        ModuleNotFoundError,
        _CommandLineError,
    ) as error:
        line = output.sentence(error)
        if isinstance(error, ValueError):  # of the library, which speaks of its own arguments
            line = output.in_options(line, _options_of(command, given), _with_value(command, given))
        sys.exit(output.refuse(line))
    if code == INTERRUPTED:  # typer turns the interrupt into this status
        output.refuse("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def _without_false_interrupts(command: Any) -> Any:
    """The command with an end of file as an error of its own; the toolkit takes it for an interrupt."""
    invoke = command.invoke

    def invoked(context: Any) -> Any:
        try:
            return invoke(context)
        except EOFError:
            raise ValueError("a file ended too early; it is empty or damaged") from None

    command.invoke = invoked
    return command


def _refuse_repeated(command: Any, given: list[str]) -> None:
    """Refuse an option that takes one value and is given twice: the toolkit takes the last."""
    named = given[0] if given and not given[0].startswith("-") else None
    chosen = None if named is None else command.get_command(None, named)
    words = [word.partition("=")[0] for word in given]
    for param in [] if chosen is None else chosen.params:
        single = not param.multiple and not getattr(param, "is_flag", False)
        for option in param.opts:
            if single and option.startswith("--") and words.count(option) > 1:
                raise ValueError(f"{option} must be given once, got it {words.count(option)} times")


def _with_value(command: Any, given: list[str]) -> set[str]:
    """The options that were given, and those that have a default."""
    chosen = _chosen(command, given)
    params = [] if chosen is None else chosen.params
    return {word.partition("=")[0] for word in given} | {
        param.opts[0] for param in params if param.default is not None
    }


def _chosen(command: Any, given: list[str]) -> Any:
    return next((command.commands[word] for word in given if word in command.commands), None)


def _options_of(command: Any, given: list[str]) -> dict[str, str]:
    """The options of the command that was given, by the names of the arguments of the library."""
    chosen = _chosen(command, given)
    if chosen is None:
        return {}
    options = {param.name: param.opts[0] for param in chosen.params if param.opts[0].startswith("--")}
    known = set(options.values())
    return options | {name: option for name, option in _NAMED_OTHERWISE.items() if option in known}
