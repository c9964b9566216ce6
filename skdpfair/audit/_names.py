"""Names of attributes and classes, and the kinds of things that they stand for."""

import re
from functools import lru_cache

from skdpfair.audit import _findings as kinds

_ATTRIBUTES = [
    (kinds.GRADIENTS, r"grad_?samples?|per_?(sample|record|example)_?grad\w*"),
    (kinds.GRADIENT, r"summed_grad|\.?grads?|\w+_grads?|\w*gradients?"),
    (kinds.OPTIMIZER, r"exp_avg\w*|momentum_buffer|square_avg|_?optim(izer)?_?\w*|opt"),
    (kinds.DATA, r"\w*(loader|iterator|data_?sets?|sampler)_?"),
    (kinds.LOSSES, r"\w*loss(es)?(_|_curve_?|_history|_values)?|\w*history_?|\w*train_scores?_?"),
    (kinds.INDICES, r"\w*(indices|indexes|idx|ids)_?|_?index|drawn|sampled\w*|perm(utation)?"),
    (kinds.GENERATOR, r"_?rng\w*|\w*generator_?(state)?|_?random_state_?"),
    (kinds.SEED, r"\w*seeds?_?(value|\d*)_?|entropy"),
    (kinds.LABELS, r"_?y(_?train|_?fit|_true)?_?|_?targets?_?|_?labels?_?|y_\w*"),
    (kinds.RECORDS, r"_?x(_?train|_?fit|_?test)?_?|_fit_x|x_\w*|_?(rows|records|batch|inputs?)_?"),
    (kinds.RECORDS, r"support_vectors_|train_?data|training_data_?|raw_data|data_?|examples?"),
    (kinds.REFERENCE, r"reference_?|\w*tw[i]n\w*|non_?private\w*|baseline_?"),
]
_ATTRIBUTE = [(kind, re.compile(pattern)) for kind, pattern in _ATTRIBUTES]
_CLASSES = [
    (kinds.DATA, r"torch\.utils\.data\..*|skorch\.dataset\..*|skdpfair\.engine\.sampling\..*"),
    (kinds.DATA, r".*\.\w*(DataLoader|Dataset|Sampler|Subset)"),
    (kinds.DATA, r"pandas\..*\.(DataFrame|Series|Categorical|MultiIndex)|scipy\.sparse\..*"),
    (kinds.DATA, r"(pyarrow|polars|xarray|dask|datasets|anndata|tables)\..*"),
    (
        kinds.STATISTICS,
        r"fairlearn\.postprocessing\..*|.*\.TunedThresholdClassifierCV|"
        r"sklearn\.tree\._tree\.Tree|sklearn\.ensemble\..*TreePredictor",
    ),
    (
        kinds.OPTIMIZER,
        r"torch\.optim\.(?!lr_scheduler).*|opacus\.optimizers\..*|.*\.\w*Optimizer|"
        r"skorch\.(net|classifier|regressor)\..*|skdpfair\.training\.(net|steps)\..*",
    ),
    (kinds.LOSSES, r"skorch\.history\.\w+"),
    (
        kinds.GENERATOR,
        r"numpy\.random\..*|torch(\._C)?\.Generator|random\.(System)?Random|_random\.Random",
    ),
    (kinds.RECORDS, r"sklearn\.neighbors\._(kd|ball)_tree\.\w+"),
    (
        kinds.FILE,
        r"(pathlib|pathlib\._local)\.\w*Path|joblib\..*(memmap|NDArrayWrapper)\w*|mmap\.mmap|"
        r"numpy(\.\w+)*\.memmap",
    ),
]
_CLASS = [(kind, re.compile(pattern)) for kind, pattern in _CLASSES]
_CARRIERS = [
    (kinds.CALLBACK, r"skorch\.callbacks\..*|.*\.\w*Callback\w*"),
    (kinds.CLOSURE, r".*\.(_make_function|_create_function|_make_cell|_create_cell)"),
    (kinds.CLOSURE, r".*\.(_make_empty_cell|partial|partialmethod|FunctionType|MethodType)"),
    (kinds.HOOK, r".*\.RemovableHandle|.*\.\w*Hooks?"),
]
_CARRIER = [(kind, re.compile(pattern)) for kind, pattern in _CARRIERS]

_RUNS = re.compile(
    r"(os|posix|nt|subprocess|sys|shutil|socket|pty|commands|importlib|runpy|ctypes|webbrowser|pip|"
    r"code|codeop|pdb|bdb|timeit|multiprocessing|asyncio|signal|tempfile|urllib|requests|http|"
    r"ftplib|smtplib|threading|_thread|platform|gc|inspect|cProfile|profile|doctest|pydoc|"
    r"distutils|ensurepip|zipimport|sqlite3|tarfile|zipfile)\b.*|"
    r"(builtins|__builtin__)\.(eval|exec|compile|execfile|open|__import__|input|breakpoint|globals|"
    r"locals|vars|setattr|delattr|exit|quit|help)|"
    r"(_?io|codecs)\.(open|open_code|FileIO)|operator\.(methodcaller|attrgetter)|"
    r"(_?pickle|dill|dill\._dill|cloudpickle|joblib|numpy|pandas|torch|torch\.serialization|"
    r"torch\.hub|torch\.jit|joblib\.numpy_pickle|marshal|shelve)\.(_?loads?|read_\w+|fromfile|"
    r"load_module|Unpickler|load_state_dict_from_url)|.*\.(runstring|os_system|__globals__)|"
    r".*\.(os|posix|sys|subprocess|shutil|builtins|importlib|ctypes)\..+|pandas\.eval|"
    r"(numpy\.lib|numpy\.f2py|pandas\.io|sklearn\.utils|logging\.config)\..*\.?(load|read_\w+|"
    r"_pickle|listen|dictConfig)|pathlib\.\w*Path\.\w+|copyreg\.ext\d+"
)
_HARMLESS = re.compile(
    r"(os\.(PathLike|fspath|environ))|(platform\.\w+)|inspect\.(Signature|_?\w+)"
)


@lru_cache(maxsize=4096)
def kind_of_name(name) -> str | None:
    """Return the kind of things that an attribute's or a key's name stands for."""
    if not isinstance(name, str):
        return None
    last = name.rsplit(".", 1)[-1].lower()
    return next((kind for kind, pattern in _ATTRIBUTE if pattern.fullmatch(last)), None)


def kind_of_class(names) -> str | None:
    """Return the kind of objects of which one of the names is the class, or a base of it."""
    return _first(_CLASS, names)


def kind_inside(names) -> str | None:
    """Return the kind of things that lie inside such objects."""
    return _first(_CARRIER, names)


def _first(table, names):
    return next((k for n in names for k, pattern in table if pattern.fullmatch(n)), None)


def is_seed(name) -> bool:
    """Tell whether an attribute or a key of this name holds a seed."""
    named = isinstance(name, str) and name.strip("_") == "random_state"
    return named or kind_of_name(name) == kinds.SEED


def runs_things(path: str) -> bool:
    """Tell whether a pickle that imports this could run commands or read other files."""
    return bool(_RUNS.fullmatch(path)) and not _HARMLESS.fullmatch(path)
