"""Equations as MathML, which browsers draw by themselves: no script, no font and no network."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def visit_math(writer: Any, node: nodes.math) -> None:
    """Write an equation within a line."""
    writer.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_displaymath(writer: Any, node: nodes.math_block) -> None:
    """Write an equation on lines of its own; it scrolls where the page is narrow."""
    writer.body.append(f'<div class="math-block">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.math | nodes.math_block, as_block: bool) -> str:
    tex = re.sub(r"\s+", " ", node.astext()).strip()
    try:
        return tex2mathml(tex, as_block=as_block)
    except MathError as error:
        LOGGER.warning("%s in the equation %s", error, tex, location=node)
        return f"<code>{escape(tex)}</code>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
