"""A dict and a template -> one page that needs nothing else: no script, no request."""

from importlib.resources import files

from skdpfair.report._parts import isolated


def render(template, context) -> str:
    """Fill a template; all text of the context is escaped, and turns nothing around it.

    Parameters
    ----------
    template : str
        File in ``templates/``.
    context : dict
        Names that the template uses, all of them.
    """
    try:
        import jinja2
    except ImportError as error:
        raise ImportError('reports need jinja2: pip install "skdpfair[report]".') from error
    environment = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: isolated(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
    return environment.get_template(template).render(context)


def _text(name):
    return (files("skdpfair.report") / "templates" / name).read_text(encoding="utf-8")
