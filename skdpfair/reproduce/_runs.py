"""The runs of a study: in parallel, each kept once it is finished, resumed where they were."""

import warnings
from pathlib import Path

import joblib
import pandas as pd
import torch
from tqdm.auto import tqdm

import skdpfair
from skdpfair.model_selection._store import Store, key_of


def frame_of(study, options, folder: Path, *, n_jobs, progress) -> pd.DataFrame:
    """Return one row per run, those in ``folder`` read and the others trained.

    On Ctrl-C the finished ones are returned, with a UserWarning; the same call goes on.
    """
    store = Store.open(
        folder,
        {"study": study.name, "skdpfair": skdpfair.__version__},
        of="reproduction",
    )
    runs = {_key(study, run): run for run in study.runs(options)}
    done = {key: found for key in runs if (found := store.load(key)) is not None}
    todo = {key: run for key, run in runs.items() if key not in done}
    tasks = (
        joblib.delayed(_run)(study.measure, key, run, options.device, store)
        for key, run in todo.items()
    )
    bar = tqdm(
        total=len(runs),
        initial=len(done),
        desc=study.name,
        unit="run",
        disable=None if progress else True,
    )
    try:
        with bar:
            parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
            for key, found in parallel(tasks):
                done[key] = found
                bar.update()
    except KeyboardInterrupt:
        done = {key: found for key in runs if (found := store.load(key)) is not None}
        warnings.warn(
            f"{study.name} was interrupted after {len(done)} of {len(runs)} runs; the comparison "
            f"holds these. The same call goes on from {str(folder)!r}.",
            UserWarning,
            stacklevel=3,
        )
    kept = [(run, done[key]) for key, run in runs.items() if key in done]
    return pd.DataFrame([{"row": run.row, "seed": run.seed} | found for run, found in kept])


def _key(study, run):
    settings = repr(sorted(run.settings.items()))
    return key_of(study.name, run.row, run.seed, settings)


def _run(measure, key, run, device, store):
    """Train one run, and keep it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # runs are parallel, and small ones gain nothing from threads
    try:
        found = measure(run, device)
    finally:
        torch.set_num_threads(before)
    store.save(key, found)
    return key, found
