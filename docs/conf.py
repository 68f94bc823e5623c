"""The documentation site: ``sphinx-build -j 2 -W --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.python import PythonLexer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

DOCS = Path(__file__).parent
OURS: set[str] = set()  # what things of the reference are called, without their modules
sys.path[:0] = [str(DOCS.parent), str(DOCS / "extensions")]

from async_wrappers import __version__  # noqa: E402

project = "async_wrappers"
author = "the async_wrappers maintainers"
project_copyright = author
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "generated",
    "mathml",
]
exclude_patterns = ["_build", "about.md", "examples", "reference/generated", "**.ipynb_checkpoints"]
nitpicky = False
highlight_language = "text"

# Markdown
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# The notebook is run when the site is built; an error in it ends the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120  # seconds for each cell
nb_merge_streams = True

# The reference, from docstrings
autosummary_generate = False  # the extension `generated` writes a page for each package
autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_mock_imports = ["h5py", "hypothesis", "jax", "minari", "psutil", "pyarrow", "pygame", "pytest", "ray", "wandb"]
# Names that modules import for types alone, since at run time the import would be a circle or bring PyTorch.
autodoc_type_aliases = {
    "Run": "async_wrappers.agents.experiment.run.Run",
    "Agent": "async_wrappers.agents.play.turns.agents.Agent",
    "Play": "async_wrappers.agents.experiment.run.Play",
    "HostPlan": "async_wrappers.agents.play.hosts.engine.HostPlan",
    "OnHosts": "async_wrappers.agents.play.hosts.hosts.OnHosts",
}
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
default_role = "literal"  # docstrings write `name`, as Markdown does
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are documented with their class, and not a second time

# The look
html_theme = "furo"
html_title = "async_wrappers"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup: docstrings here use plain text, lists and backticks alone."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        pieces = re.split(r"(`+[^`]*`+|(?<![\w*])\*\w[\w -]*\*(?![\w*]))", line)  # code and *emphasis* stay
        for at in range(0, len(pieces), 2):
            pieces[at] = re.sub(r"(?<!^)(?<!\S)\*(?=\s)|(?<=\S)\*|\*(?=\S)|\|", r"\\\g<0>", pieces[at])
            pieces[at] = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", pieces[at])
        lines[number] = "".join(pieces)


def at_home(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out what a module only passes on: each thing is documented once, in the module that defines it."""
    here = app.env.current_document.autodoc_module
    home = getattr(obj, "__module__", here)
    return True if what == "module" and home != here else None


def collapse(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Let the sidebar list the pages of the chapter that is read: all pages on each took half of the build's time."""
    if (toctree := context.get("toctree")) is not None:
        context["toctree"] = lambda **how: toctree(**{**how, "collapse": True})


class OtherPackages(SphinxPostTransform):
    """Let no type of another package, such as ``Callable``, be searched for.

    Sphinx compares the end of each name of the reference with a type that it does not find, and most types are of other
    packages.
    """

    default_priority = 9  # before references are resolved

    def run(self, **how: Any) -> None:
        """Leave to an exact search what nothing here is called."""
        for reference in self.document.findall(pending_xref):
            if reference.get("refdomain") == "py" and reference["reftarget"].rsplit(".", 1)[-1] not in OURS:
                reference.attributes.pop("refspecific", None)


def remember(app: Sphinx, env: BuildEnvironment) -> None:
    """Keep the last part of each name of the reference."""
    OURS.update(name.rsplit(".", 1)[-1] for name in env.domains.python_domain.objects)


def spread(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Read the notebook first, and the packages' pages among the others: ``-j 2`` gives a process 28 pages in turn."""
    places = {"start/quickstart": -1.0}  # it takes longest
    for kind in ([page for page in pages if "/api/" in page], [page for page in pages if "/api/" not in page]):
        for number, page in enumerate(kind):
            places.setdefault(page, number / len(kind))
    pages.sort(key=lambda page: places[page])


def setup(app: Sphinx) -> None:
    """Add what the pages need besides: gin's colours are Python's."""
    app.add_lexer("gin", PythonLexer)
    app.add_post_transform(OtherPackages)
    app.connect("env-before-read-docs", spread)
    app.connect("env-updated", remember)
    app.connect("autodoc-skip-member", at_home)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon
    app.connect("html-page-context", collapse, priority=100)  # before furo
