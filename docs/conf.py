"""Sphinx: pages of Markdown, a gallery that runs, and a reference made from the modules."""

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import matplotlib
from docutils.nodes import SkipNode

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")
matplotlib.use("Agg")

import skdpfair
from skdpfair.methods._methods_table import methods_table, references

project = "skdpfair"
copyright = "the skdpfair developers"
author = "The skdpfair developers"
version = release = skdpfair.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build", "api/generated/*.tmp"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
default_role = "code"  # `name` in docstrings is a name, wherever it is defined

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"

autosummary_generate = True
autodoc_default_options = {"members": False}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"skdpfair {version}"
html_math_renderer = "mathml"  # browsers show it without scripts
html_static_path = ["_static"]
html_css_files = ["skdpfair.css"]
html_js_files = ["wide.js", "versions.js"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 9,
    "logo": {"text": html_title},
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
}
html_sidebars = {"index": [], "start": [], "auto_examples/plot_00_tutorial": []}
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # its page loads scripts from the network
    "matplotlib_animations": False,
    "abort_on_example_error": True,
    "min_reported_time": 5,
}
warnings.filterwarnings("ignore", category=DeprecationWarning)

ROOMS = {
    "skdpfair": "The estimators",
    "skdpfair.preprocessing": "Preparation",
    "skdpfair.features": "Features of pictures",
    "skdpfair.augmentations": "Views and adversarial inputs",
    "skdpfair.networks": "Networks",
    "skdpfair.performative": "Decision-dependent data",
    "skdpfair.datasets": "Data sets",
    "skdpfair.methods": "Methods",
    "skdpfair.budget": "Budgets over many fits",
    "skdpfair.model_selection": "Model selection and thresholds",
    "skdpfair.metrics": "Metrics",
    "skdpfair.release": "Releases",
    "skdpfair.report": "Reports, displays, the dashboard",
    "skdpfair.privacy": "Accounting",
    "skdpfair.analysis": "Audits and diagnostics",
    "skdpfair.exceptions": "Errors and warnings",
    "skdpfair.engine.mechanism": "For authors of methods",
    "skdpfair.testing": "Contracts",
}
FIRST_OF_TASK = {  # the rooms are in the order of the tasks
    "skdpfair": "Fit",
    "skdpfair.methods": "Choose",
    "skdpfair.metrics": "Measure",
    "skdpfair.release": "Release",
    "skdpfair.privacy": "Audit",
    "skdpfair.engine.mechanism": "Extend",
}


def public_names(room):
    """Return the public functions and classes of a module."""
    module = import_module(room)
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == room
    ]
    return sorted(name for name in names if callable(getattr(module, name)))


def write_reference(app, config):
    """Write api/index.rst: every public name of every room, so that none is forgotten."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    lines, told = ["API reference", "=============", ""], set()
    for room, title in ROOMS.items():
        about = (import_module(room).__doc__ or "").strip().splitlines()[0]
        found = {name: getattr(import_module(room), name) for name in public_names(room)}
        names = [f"   ~{room}.{name}" for name, value in found.items() if value not in told]
        told |= set(found.values())
        if room == "skdpfair.methods":
            classes = {type_.__name__: type_ for type_ in skdpfair.METHODS.values()}
            names += [f"   ~{c.__module__}.{name}" for name, c in sorted(classes.items())]
        if task := FIRST_OF_TASK.get(room):
            lines += [task, "-" * len(task), ""]
        lines += [title, "~" * len(title), "", f"``{room}``: {about}", ""]
        lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", "", *names, ""]
    (folder / "index.rst").write_text("\n".join(lines))


def method_tables():
    """Return what the pages say of methods, by the comment that it takes the place of."""
    table = methods_table().reset_index()
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    papers = {name: references(method) for name, method in sorted(skdpfair.METHODS.items())}
    named = [name for name in papers if not skdpfair.METHODS[name].reference]
    return {
        "methods": [f"| {' | '.join(row)} |" for row in rows],
        "references of methods": [f"- `{name}`: {papers[name]}" for name in named],
    }


def fill_in(app, page, source):
    """Put tables made from the package in the place of comments."""
    for name, lines in method_tables().items():
        comment = f"<!-- {name}: filled in when the pages are built -->"
        source[0] = source[0].replace(comment, "\n".join(lines))


def write_formula(self, node):
    """Write a formula as MathML, which browsers show without a script or a network."""
    from latex2mathml.converter import convert  # of the extra docs; tests import this file, too

    text, display = node.astext(), "block" if node.tagname == "math_block" else "inline"
    if "\\\\" in text:
        text = rf"\begin{{split}}{text}\end{{split}}"
    self.body.append(convert(text, display=display))
    raise SkipNode


def setup(app):
    """Make the reference before the pages are looked for, and tables as they are read."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("config-inited", write_reference)
    app.connect("source-read", fill_in)
