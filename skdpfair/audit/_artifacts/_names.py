"""What names say: of attributes, of classes, and of functions that a pickle has no need of."""

import re

GRADIENTS, GRADIENT = "per-record gradients", "gradient"
OPTIMIZER, LOADER, DATASET, SAMPLER = "optimizer state", "data loader", "data set", "sampler"
LOSSES, PER_RECORD, INDICES = "loss history", "per-record values", "sampled indices"
GENERATOR, SEED, TWIN, CLOSURE = "generator state", "seed", "twin", "closure"
CALLBACK, HOOK, FILE, RECORDS, LABELS = "callback", "hook", "file path", "records", "labels"
TABLE, COPY, STATISTICS = "table", "float64 copy", "statistics of the data"
ARRAY, NUMBERS, BYTES = "unexplained array", "unexplained numbers", "unexplained bytes"
TEXT, EXECUTABLE, UNREADABLE = "unexplained text", "executable", "unreadable"

IN_WORDS = {
    GRADIENTS: "one gradient per record; a linear layer's holds the record itself",
    GRADIENT: "a gradient before its noise, or one that noise can be told from",
    OPTIMIZER: "the state of an optimizer",
    LOADER: "what reads the training data",
    DATASET: "the training data, or a part",
    SAMPLER: "what draws the batches",
    LOSSES: "losses on the training data, or what looks like them",
    PER_RECORD: "one number per record",
    INDICES: "which records were drawn",
    GENERATOR: "the state of a random generator, which gives its past and next draws",
    SEED: "a seed, which gives the noise away",
    TWIN: "a second model, or one without finite epsilon",
    CLOSURE: "what a function carries along",
    CALLBACK: "what a callback kept of the training",
    HOOK: "a hook on a tensor or module",
    FILE: "the path of a file",
    RECORDS: "records of the data",
    LABELS: "labels or targets of records",
    TABLE: "a table, a column or a sparse matrix",
    COPY: "64-bit numbers where the model has 32",
    STATISTICS: "learnt from the data outside every privacy budget",
    ARRAY: "an array that no public fact explains",
    NUMBERS: "numbers that no public fact explains",
}

_ATTRIBUTES = [
    (GRADIENTS, r"grad_?samples?|per_?(sample|record|example)_?grad\w*"),
    (GRADIENT, r"summed_grad|\.?grads?|\w+_grads?|\w*gradients?|accumulated_\w*|last_grad"),
    (OPTIMIZER, r"exp_avg\w*|momentum_buffer|square_avg|max_exp_avg_sq|_?optim(izer)?_?\w*|opt"),
    (LOADER, r"\w*(data_?)?loader_?|\w*iterator_?|data_iter"),
    (DATASET, r"(train|valid|test)?_?data_?sets?_?"),
    (SAMPLER, r"\w*sampler_?"),
    (LOSSES, r"\w*loss(es)?(_|_curve_?|_history|_values)?|\w*history_?|\w*train_scores?_?"),
    (PER_RECORD, r"\w*norms?_?|per_(record|sample)_\w+|\w*residuals?_?|margins?_?"),
    (INDICES, r"\w*(indices|indexes|idx|ids)_?|_?index|drawn|sampled\w*|permutation|perm|order"),
    (GENERATOR, r"_?rng(_state)?|\w*generator_?(state)?|bit_generator|_?random_state_?|rng\w*"),
    (SEED, r"\w*seeds?_?(value|\d*)_?|entropy"),
    (LABELS, r"_?y(_?train|_?fit|_true)?_?|_?targets?_?|_?labels?_?|y_\w*"),
    (RECORDS, r"_?[xX](_?train|_?fit|_?test)?_?|_fit_x|[xX]_\w*|_?(rows|records|batch|inputs?)_?"),
    (RECORDS, r"support_vectors_|train_?data|training_data_?|raw_data|data_?|examples?"),
    (TWIN, r"reference_?|\w*twin\w*|non_?private\w*|baseline_?"),
]
_ATTRIBUTE = [(kind, re.compile(pattern)) for kind, pattern in _ATTRIBUTES]

_CLASSES = [
    (LOADER, r"torch\.utils\.data\.\w*\.?_?\w*(DataLoader|LoaderIter)\w*|.*\.\w*DataLoader\w*"),
    (SAMPLER, r".*\.\w*Sampler|skdpfair\.(schedule|engine\.sampling|streaming)\.\w+"),
    (
        DATASET,
        r"torch\.utils\.data\.(dataset\.)?\w+|skorch\.dataset\.\w+|.*\.\w*Dataset|.*\.Subset",
    ),
    (STATISTICS, r"fairlearn\.postprocessing\..*|.*\.TunedThresholdClassifierCV"),
    (OPTIMIZER, r"torch\.optim\.(?!lr_scheduler).*|opacus\.optimizers\..*|.*\.\w*Optimizer"),
    (OPTIMIZER, r"skdpfair\.(steps|net)\.\w+|skorch\.(net|classifier|regressor)\.\w+"),
    (LOSSES, r"skorch\.history\.\w+"),
    (
        GENERATOR,
        r"numpy\.random\..*|torch(\._C)?\.Generator|random\.(System)?Random|_random\.Random",
    ),
    (
        TABLE,
        r"pandas\..*\.(DataFrame|Series|Categorical|MultiIndex)|scipy\.sparse\..*_(matrix|array)",
    ),
    (RECORDS, r"sklearn\.neighbors\._(kd|ball)_tree\.\w+"),
    (STATISTICS, r"sklearn\.tree\._tree\.Tree|sklearn\.ensemble\..*TreePredictor"),
    (TABLE, r"pyarrow\..*|polars\..*|xarray\..*|dask\..*|datasets\..*|anndata\..*|tables\..*"),
    (FILE, r"(pathlib|pathlib\._local)\.\w*Path|joblib\..*(memmap|NDArrayWrapper)\w*|mmap\.mmap"),
    (FILE, r"numpy(\.\w+)*\.memmap"),
]
_CLASS = [(kind, re.compile(pattern)) for kind, pattern in _CLASSES]

_WITHIN = [
    (CALLBACK, r"skorch\.callbacks\..*|.*\.\w*Callback\w*"),
    (CLOSURE, r".*\.(_make_function|_create_function|_make_cell|_create_cell|_make_empty_cell)"),
    (CLOSURE, r".*\.(partial|partialmethod|FunctionType|MethodType|CellType|LambdaType)"),
    (HOOK, r".*\.RemovableHandle|.*\.\w*Hooks?"),
]
_INSIDE = [(kind, re.compile(pattern)) for kind, pattern in _WITHIN]

_RUNS = re.compile(
    r"(os|posix|nt|subprocess|sys|shutil|socket|pty|commands|importlib|runpy|ctypes|webbrowser|pip|"
    r"code|codeop|pdb|bdb|timeit|multiprocessing|asyncio|signal|tempfile|urllib|requests|http|"
    r"ftplib|smtplib|threading|_thread|platform|gc|inspect)\b.*|"
    r"(builtins|__builtin__)\.(eval|exec|compile|execfile|open|__import__|input|breakpoint|globals|"
    r"locals|vars|setattr|delattr|exit|quit|help)|"
    r"(_?io|codecs)\.(open|open_code|FileIO)|operator\.(methodcaller|attrgetter)|"
    r"(_?pickle|pickle|dill|dill\._dill|cloudpickle|joblib|numpy|pandas|torch|torch\.serialization|"
    r"torch\.hub|torch\.jit|joblib\.numpy_pickle|marshal|shelve)\.(_?loads?|read_\w+|fromfile|"
    r"load_module|Unpickler|load_state_dict_from_url)|.*\.(runstring|os_system|__globals__)|"
    r".*\.(os|posix|sys|subprocess|shutil|builtins|importlib|ctypes)\..+|pandas\.eval|"
    r"(numpy\.lib|pandas\.io|sklearn\.utils)\..*\.?(load|read_\w+|_pickle)|"
    r"(cProfile|profile|doctest|pydoc|distutils|ensurepip|numpy\.f2py|zipimport|sqlite3|tarfile|"
    r"zipfile|logging\.config)\b.*|pathlib\.\w*Path\.\w+|copyreg\.ext\d+"
)
_HARMLESS = re.compile(
    r"(os\.(PathLike|fspath|environ))|(platform\.\w+)|inspect\.(Signature|_?\w+)"
)


def kind_of_name(name) -> str | None:
    """Return what an attribute's or a key's name says that it holds."""
    if not isinstance(name, str):
        return None
    last = name.rsplit(".", 1)[-1].lower()
    return next((kind for kind, pattern in _ATTRIBUTE if pattern.fullmatch(last)), None)


def kind_of_class(names) -> str | None:
    """Return what objects are of which one of the names is the class, or a base of it."""
    return _first(_CLASS, names)


def kind_inside(names) -> str | None:
    """Return what lies inside of such objects."""
    return _first(_INSIDE, names)


def _first(table, names):
    return next((k for n in names for k, pattern in table if pattern.fullmatch(n)), None)


def runs_things(path: str) -> bool:
    """Tell whether a pickle that imports this could run commands or read other files."""
    return bool(_RUNS.fullmatch(path)) and not _HARMLESS.fullmatch(path)
