"""Sphinx: pages of Markdown, a gallery that runs, and a reference made from the modules."""

import os
import re
import sys
import warnings
from pathlib import Path

import matplotlib
from docutils.nodes import SkipNode

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")
matplotlib.use("Agg")

from methods_table import methods_table, references

import skdpfair
from skdpfair.methods import METHODS

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
    # the tables of this page need the room
    "secondary_sidebar_items": {"**": ["page-toc"], "evidence/reproducibility": []},
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
    "ignore_repr_types": r"matplotlib|skdpfair\.report",  # the figures themselves are shown
}
warnings.filterwarnings("ignore", category=DeprecationWarning)

AUDIENCES = {
    "You train a private model": {
        "skdpfair": ["DPFairClassifier", "DPFairRegressor", "Groups", "Persons"],
        "skdpfair.preprocessing": [
            "public_preprocessor",
            "TableSchema",
            "BoundedScaler",
            "DPQuantileScaler",
            "lint_pipeline",
            "outside_public",
        ],
        "skdpfair.datasets": ["fetch_dutch", "load_adult", "make_two_groups", "public_facts"],
    },
    "You compare the costs of groups": {
        "skdpfair.metrics": [
            "dg_gap",
            "excessive_risk",
            "group_table",
            "privacy_cost",
            "release_group_table",
        ],
        "skdpfair.model_selection": [
            "GroupScorer",
            "TradeoffResults",
            "comparison_scorer",
            "sweep",
        ],
        "skdpfair.report": [
            "GroupLossDisplay",
            "PrivacyCostDisplay",
            "ShapeDisplay",
        ],
        "skdpfair.analysis": ["GroupRecorder"],
        "skdpfair.performative": ["StrategicResponse", "repeated_deployment"],
    },
    "You search, set thresholds, and keep a budget": {
        "skdpfair.budget": ["PrivacyLedger"],
        "skdpfair.model_selection": ["DPRandomizedSearch", "DPThresholdClassifier", "forecast"],
    },
    "You release a model, and state what it guarantees": {
        "skdpfair": ["load_release"],
        "skdpfair.report": ["export_statement", "model_card", "model_page"],
    },
    "You audit, or account by hand": {
        "skdpfair.testing": ["audit_fit", "verify_release"],
        "skdpfair.privacy": [
            "NoisyRelease",
            "calibrate_noise",
            "compute_epsilon",
            "gdp_parameter",
            "trade_off",
        ],
    },
    "You bring pictures, a network, or a method": {
        "skdpfair": ["Factory", "MLP", "fit_on_dask", "get_method"],
        "skdpfair.features": ["FrozenFeatures", "Scattering2D"],
        "skdpfair.augmentations": ["PGD", "FlipAndShift", "Views"],
        "skdpfair.methods": ["Clip", "Method", "Query"],
        "skdpfair.testing": [
            "check_engine",
            "check_method",
            "example_records",
            "example_task",
            "noiseless_releases",
        ],
    },
}


def public_names():
    """Return the listed names of each module."""
    names = {}
    for rooms in AUDIENCES.values():
        for room, listed in rooms.items():
            names.setdefault(room, []).extend(listed)
    return names


def autosummary(names):
    """Return the directive that lists objects and makes a page of each."""
    return [".. autosummary::", "   :toctree: generated", "   :nosignatures:", "", *names, ""]


def write_reference(app, config):
    """Write a page for each audience, of its public names by room, and api/index.rst of the pages.

    The side bar shows the pages, and below each the names on it.
    """
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    for page in folder.glob("*.rst"):  # of an earlier build, whose name may have changed
        page.unlink()
    methods = sorted(METHODS.values(), key=lambda method: method.__name__)
    raised = [name for name, value in vars(skdpfair.exceptions).items() if isinstance(value, type)]
    further = {  # of the first page
        "Methods": [f"{method.__module__}.{method.__name__}" for method in methods],
        "Errors and warnings": [f"skdpfair.exceptions.{name}" for name in sorted(raised)],
    }
    pages = []
    for audience, rooms in AUDIENCES.items():
        named = {f"``{room}``": [f"{room}.{n}" for n in names] for room, names in rooms.items()}
        lines = [audience, "=" * len(audience), ""]
        for title, names in (named | further).items():
            lines += [title, "-" * len(title), "", *autosummary([f"   ~{name}" for name in names])]
        pages.append("-".join(re.findall(r"[a-z]+", audience.lower())))
        (folder / f"{pages[-1]}.rst").write_text("\n".join(lines))
        further = {}
    toctree = [".. toctree::", "   :maxdepth: 2", "", *(f"   {page}" for page in pages)]
    title = "API reference"
    (folder / "index.rst").write_text("\n".join([title, "=" * len(title), "", *toctree, ""]))


def method_tables():
    """Return what the pages say of methods, by the comment that it takes the place of."""
    table = methods_table().reset_index()
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    papers = {name: references(method) for name, method in sorted(METHODS.items())}
    named = [name for name in papers if not METHODS[name].reference]
    return {
        "methods": [f"| {' | '.join(row)} |" for row in rows],
        "references of methods": [f"- `{name}`: {papers[name]}" for name in named],
    }


# comments for `docs/blocks.py`, which are not for readers
MARKER = re.compile(r" *# (?:unseeded\b.*|your pipeline)$", re.MULTILINE)


def fill_in(app, page, source):
    """Put tables made from the package in the place of comments; remove the markers of blocks."""
    source[0] = MARKER.sub("", source[0])
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
    # the gallery shows warnings without the folder in which it was built
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("config-inited", write_reference)
    app.connect("source-read", fill_in)
