# SPDX-License-Identifier: Apache-2.0
"""The explorer's page, a marimo notebook: `marimo run` serves it, `marimo export html-wasm` makes it static.

Cells place widgets and text; what they say is computed in `question` and `answer`. One state holds the
settings. Sliders and text fields both write it, in cells of their own: a cell does not run again for what its
own widgets wrote, so that a slider is never replaced while it is dragged.
"""

# ruff: noqa: D103 (cells are read by their names)
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return"
import marimo

app = marimo.App(width="full", app_title="ggdp explorer")


@app.cell
def start():
    import base64
    import dataclasses
    import html
    from importlib.resources import files

    import marimo as mo

    from ggdp.reporting.explorer import answer, question

    opened = question.from_query(mo.query_params().to_dict())
    get_settings, set_settings = mo.state(opened)

    def setter(name):
        """What a widget does with its new value: write it into the settings."""

        def write(value):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            set_settings(dataclasses.replace(get_settings(), **{name: text}))

        return write

    def picture(svg, words):
        """A drawing as an image, with its description for those who cannot see it."""
        data = base64.b64encode(svg).decode()
        return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'

    def card(title, inside):
        heading = f'<div class="gg-title" role="heading" aria-level="2">{title}</div>'
        return f'<div class="gg-card">{heading}{inside}</div>'

    style = files("ggdp.reporting.explorer").joinpath("style.css").read_text(encoding="utf-8")
    return answer, card, get_settings, html, mo, picture, question, set_settings, setter, style


@app.cell
def presets(mo, question, set_settings):
    buttons = [
        mo.ui.button(label=_name, on_change=lambda _, settings=_settings: set_settings(settings))
        for _name, _settings in question.PRESETS.items()
    ]
    return (buttons,)


@app.cell
def sliders(get_settings, mo, question, setter):
    slider_of = {
        _knob.name: mo.ui.slider(
            steps=list(_knob.stops),
            value=_knob.nearest(getattr(get_settings(), _knob.name)),
            on_change=setter(_knob.name),
            full_width=True,
        )
        for _knob in question.KNOBS
    }
    return (slider_of,)


@app.cell
def fields(get_settings, mo, question, setter):
    field_of = {
        _knob.name: mo.ui.text(
            value=getattr(get_settings(), _knob.name),
            label=_knob.label,
            on_change=setter(_knob.name),
            full_width=True,
        )
        for _knob in question.KNOBS
    }
    return (field_of,)


@app.cell
def choices(get_settings, mo, question, setter):
    def _choice(name, options, widget, **more):
        value = getattr(get_settings(), name)
        labels = {text: label for label, text in options.items()}
        known = options if value in labels else {**options, value: value}
        return widget(options=known, value=labels.get(value, value), on_change=setter(name), **more)

    choice_of = {
        "find": _choice("find", question.FIND, mo.ui.radio),
        "norm": _choice("norm", question.NORMS, mo.ui.dropdown, label="Norm of a change", full_width=True),
        "adjacency": _choice(
            "adjacency",
            question.ADJACENCIES,
            mo.ui.dropdown,
            label="Neighbouring datasets differ by",
            full_width=True,
        ),
    }
    return (choice_of,)


@app.cell
def knobs(buttons, choice_of, field_of, get_settings, html, mo, question, slider_of, style):
    def _knob_html(knob):
        return (
            f'<div class="gg-knob" data-knob="{knob.name}" title="{html.escape(knob.meaning)}">'
            f"{field_of[knob.name]}{slider_of[knob.name]}"
            f'<p class="gg-help">{html.escape(knob.meaning)}</p>'
            f"<details><summary>What is this?</summary>{html.escape(knob.meaning)}</details></div>"
        )

    _hidden = "noise" if get_settings().find == "noise" else "epsilon"
    _turned = "".join(_knob_html(_knob) for _knob in question.KNOBS if _knob.name != _hidden)
    _vector = (
        "" if get_settings().dimension == "1" else f'<div class="gg-knob gg-choice">{choice_of["norm"]}</div>'
    )
    mo.Html(f"""
    <style>{style}</style>
    <div class="gg-knobs">
      <div class="gg-top" role="heading" aria-level="1">ggdp explorer</div>
      <p class="gg-lead">Noise protects the people in your data. Turn the knobs to see how much privacy a
      noise gives, certified.</p>
      <div class="gg-presets"><span>Examples</span>{"".join(f"{_button}" for _button in buttons)}</div>
      <div class="gg-find">{choice_of["find"]}</div>
      {_turned}{_vector}
      <div class="gg-knob gg-choice">{choice_of["adjacency"]}</div>
    </div>""")
    return


@app.cell
def headline(answer, get_settings, html, mo, question):
    try:
        found = answer.answer_of(question.question_of(get_settings()))
        _facts = answer.facts(found)
        _shown = f"""
        <div class="gg-headline">
          <div class="gg-tile gg-main">
            <div class="gg-name">Certified epsilon at delta = {found.question.delta:g}</div>
            <div class="gg-number" data-fact="epsilon">&le; {_facts["epsilon"]}</div>
            <div class="gg-note">The true value lies between <b>{_facts["lower"]}</b> and
            <b>{_facts["upper"]}</b>: width {_facts["width"]}, which is {_facts["percent"]}.
            Method: {html.escape(_facts["method"])}.</div>
          </div>
          <div class="gg-tile">
            <div class="gg-name">Noise multiplier</div>
            <div class="gg-number" data-fact="noise">{_facts["noise multiplier"]}</div>
            <div class="gg-note">Scale {_facts["scale"]}, standard deviation {_facts["standard deviation"]},
            in units of the sensitivity.</div>
          </div>
          <p class="gg-run">{html.escape(answer.run_in_words(found))}</p>
          <div class="gg-bar" aria-hidden="true"><span>epsilon &le; <b>{_facts["epsilon"]}</b></span>
          <span>noise multiplier <b>{_facts["noise multiplier"]}</b></span></div>
        </div>"""
    except (ValueError, ArithmeticError, MemoryError) as _error:
        found = None
        _shown = f'<div class="gg-error" role="alert">{html.escape(answer.sentence(_error))}</div>'
    mo.Html(_shown)
    return (found,)


@app.cell
def elsewhere(found, get_settings, html, mo, question):
    mo.stop(found is None)
    _query = question.to_query(get_settings())
    _request = mo.app_meta().request
    _place = str(mo.notebook_location())
    if _request is not None:
        _place = (
            f"http{'s' if _request.url['scheme'] in ('wss', 'https') else ''}://{_request.url['netloc']}/"
        )
    _blocks = (
        ("The same numbers from Python", "python", question.python_lines(found.question)),
        ("From a shell", "bash", question.command_line(found.question)),
        ("A link to these settings", "text", f"{_place}?{_query}"),
    )
    _shown = "".join(
        f'<div class="gg-title" role="heading" aria-level="2">{_title}</div>'
        + mo.md(f"```{_language}\n{_text.strip()}\n```").text
        for _title, _language, _text in _blocks
    )
    mo.Html(f'<div class="gg-card gg-code">{_shown}<a href="?{html.escape(_query)}">Open this link</a></div>')
    return


@app.cell
def attack(answer, card, found, mo, picture):
    mo.stop(found is None)
    _trade_off = answer.trade_off_of(found)
    _words = answer.attack_in_words(_trade_off)
    _curve = f"""{picture(answer.curve_picture(found), "Certified epsilon at each delta")}
      <p>Every point is a guarantee of the same run: a smaller delta costs a larger epsilon. Computed at the
      dots; a shaded band lies between lower and upper bounds.</p>"""
    _attack = f"""{picture(answer.trade_off_picture(_trade_off), _words)}
      <p data-fact="attack">{_words} Computed at the dots. Nobody reaches the shaded
      area. The dotted line is blind guessing.</p>"""
    mo.Html(
        f"""<div class="gg-pair">{card("Epsilon against delta", _curve)}
    {card("What an attacker can achieve", _attack)}</div>"""
    )
    return


@app.cell
def compared(answer, card, found, html, mo, picture):
    mo.stop(found is None)
    _rivals = answer.rivals_of(found)
    _rows = answer.tail_rows(found, _rivals)
    _names = "".join(f"<th>{html.escape(_name)}</th>" for _name in _rows[0].weights)
    _body = "".join(
        f"<tr><td>{_row.t:g}</td>"
        + "".join(f"<td>{'-' if _w is None else f'{_w:.2g}'}</td>" for _w in _row.weights.values())
        + "</tr>"
        for _row in _rows
    )
    _told = "".join(f"<li>{html.escape(_line)}</li>" for _line in answer.comparison(found, _rivals))
    _density = f"""{picture(answer.density_picture(found, _rivals), "Densities of noises of equal privacy")}
      <ul data-fact="comparison">{_told}</ul>"""
    _tails = f"""{picture(answer.tail_picture(found, _rivals), "How often noise exceeds t")}
      <table class="gg-tails"><thead><tr><th>t</th>{_names}</tr></thead><tbody>{_body}</tbody></table>
      <p>The chance that noise exceeds t in size, with t in units of the sensitivity.</p>"""
    mo.Html(
        f"""<div class="gg-pair">{card("The noise, and others of equal privacy", _density)}
    {card("How often is noise large?", _tails)}</div>"""
    )
    return


if __name__ == "__main__":
    app.run()
