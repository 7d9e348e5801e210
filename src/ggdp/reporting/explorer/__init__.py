# SPDX-License-Identifier: Apache-2.0
"""The explorer: a page in the browser whose knobs ask the accountant, started by `ggdp explore`.

    Settings --question_of--> Question --answer_of--> Answer --> rivals, tables, pictures
       |                         |
       +-- to_query, from_query  +-- python_lines, command_line

`app` is the page, a marimo notebook that places widgets and calls these functions; `style.css` is its look.
"""
