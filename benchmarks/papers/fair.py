"""All private methods, tuned alike, at one accounted budget; no paper prints this."""

from itertools import product

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.papers import data, fitting
from benchmarks.papers.rendering import headline
from benchmarks.papers.study import POINTS, Study, cell, claim, less_apart
from skdpfair import get_method
from skdpfair.datasets import fetch_dutch, load_adult, public_facts
from skdpfair.estimators.classifier import DPFairClassifier
from skdpfair.inputs.groups import Groups
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report._displays import PALETTE, dress

EPSILON, STEPS, BATCH = 1.0, 300, 2048
BOUNDS, STEP_SIZES = (0.25, 1.0, 4.0), (0.5, 2.0, 8.0, 32.0)
_SETS = ("adult", "dutch")
_GROUPS = ("female", "male")
_COSTS = ["cost[female]", "cost[male]"]
# which parameter the bounds are, what else a method needs, and what a step is long in units of it
_METHODS = {
    "dpsgd": ("max_grad_norm", {}),
    "global": ("strict_max_grad_norm", {"max_grad_norm": 1.0}),
    "global_adapt": ("strict_max_grad_norm", {"max_grad_norm": 1.0}),
    "dpsgd_f": ("max_grad_norm", {}),
    "naive": ("max_grad_norm", {}),
    "dp_is_sgd": ("max_grad_norm", {}),
    "asc": ("max_grad_norm", {}),
    "bam": ("max_grad_norm", {}),
    "dp_sat": ("max_grad_norm", {}),
    "pcsgd": ("max_grad_norm", {"radius": 20.0}),
    "fairlens_dp": ("max_grad_norm", {}),
    "auto_s": (None, {}),  # as if gradients were clipped to 1: the bound is a factor of lr
    "soft_adaclip": ("max_grad_norm", {}),
    "bounded_adapt": ("max_grad_norm", {}),
}
_NAMES = ("default", *_METHODS)


def split_of(name, seed) -> data.Split:
    """Return a data set prepared from public facts alone, 80/20."""
    if name == "adult":
        found = load_adult(dropna=True)
        prepare = public_preprocessor(**public_facts("adult"), encoding="linear")
        group = found.data["sex"].astype(str).str.lower().to_numpy(dtype=str)
        y = (found.target == ">50K").to_numpy().astype(int)
    else:
        found = fetch_dutch()
        prepare = public_preprocessor(**public_facts("dutch"))
        group = np.where(found.data["sex"] == "1", "male", "female")
        y = (found.target == "2_1").to_numpy().astype(int)
    x = np.asarray(prepare.fit_transform(found.data), dtype=np.float32)
    return data.four_fifths(x, y, group, np.random.default_rng(seed).permutation(len(y)))


class Comparison(Study):
    """Accuracy, and its cost to each group, against a well-trained model without privacy."""

    name = "fair-comparison"
    title = "All private methods, tuned alike, at one budget, against a well-trained reference"
    source = "In no paper"
    rows = tuple(f"{name}/{method}" for name in _SETS for method in _NAMES)

    def settings(self, row, options):
        """Return the budget, the length of training and the grid of the tuning."""
        settings = {"epsilon": EPSILON, "steps": STEPS, "batch": BATCH}
        return settings | {"bounds": BOUNDS, "step_sizes": STEP_SIZES}

    def measure(self, run, device):
        """Tune a method on a part of the training rows, train it on all, and compare."""
        name, method = run.row.split("/")
        split = split_of(name, run.seed)
        best = {} if method == "default" else _tuned(method, split, run)
        model = _fit(method, split, run, device, **best)
        right = model.predict(split.x_test) == split.y_test
        reference = _right_without_privacy(split, run.seed)
        found = {}
        for group in _GROUPS:
            rows = split.group_test == group
            own = 100 * float(right[rows].mean())
            found[f"accuracy[{group}]"] = own
            found[f"cost[{group}]"] = 100 * float(reference[rows].mean()) - own
        accuracy = 100 * float(right.mean())
        return found | {"accuracy": accuracy, "epsilon": model.privacy_.epsilon} | best

    def cells(self, rows):
        """Yield accuracies, costs and gaps; nothing of it is in print."""
        for row, own in rows.items():
            for column in ("accuracy", "accuracy[female]", "accuracy[male]", *_COSTS):
                yield cell(row, column, own[column], POINTS)
            gap = own["cost[female]"] - own["cost[male]"]
            yield cell(row, "cost gap", gap, POINTS, absolute=True)

    def claims(self, rows):
        """Judge, tuned alike, that aligned gradients cost the groups less and more evenly."""
        found = []
        for name in _SETS:
            names = [f"{name}/{method}" for method in ("dpsgd", "global_adapt")]
            if rows.keys() >= set(names):
                costs = [rows[row][_COSTS] for row in names]
                worst = [cost.max(axis=1) for cost in costs]
                gaps = [cost["cost[female]"] - cost["cost[male]"] for cost in costs]
                less = f"{name}: global_adapt costs the worst group less than dpsgd"
                smaller = f"{name}: global_adapt has a smaller gap than dpsgd"
                found += [claim(less, worst[0] - worst[1]), claim(smaller, less_apart(*gaps))]
        return found

    def notes(self, options):
        """Return how methods and reference are trained."""
        return [
            f"All methods train softmax regression at epsilon {EPSILON:g} (PLD, delta 1e-6), "
            f"{STEPS} steps of {BATCH} expected records, plain SGD, the last half of the iterates "
            "averaged.",
            f"Each is tuned over the same twelve settings: its clipping bound (at the start, where "
            f"it moves; Z for the global methods) in {BOUNDS}, its effective learning rate (lr, or "
            f"lr C/Z) in {STEP_SIZES}, by accuracy on a fifth of the training rows, which no "
            "epsilon counts; 'auto_s' has no bound, and its lr takes the twelve products; "
            "'default' is global_adapt, untuned, with its own model, batches and steps.",
            "Costs are against the better of scikit-learn's logistic regression and a network of "
            "32 hidden units, chosen likewise and trained to convergence on the same rows.",
            "Features are scaled by public bounds and one-hot in public categories; sex is among "
            "them.",
        ]

    def draw(self, found):
        """Draw the cost of each method to each group, one panel per data set."""
        import matplotlib.pyplot as plt

        names = _NAMES[::-1]
        drawn, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained", sharey=True)
        for ax, data_set in zip(axes, _SETS, strict=True):
            for colour, group, shift in zip(
                PALETTE, ("female", "male"), (0.14, -0.14), strict=False
            ):
                own = found.cells[found.cells["measure"] == f"cost[{group}]"].set_index("row")
                there = [i for i, name in enumerate(names) if f"{data_set}/{name}" in own.index]
                own = own.loc[[f"{data_set}/{names[i]}" for i in there]]
                bars = {"xerr": 2 * own["ours_se"].fillna(0), "capsize": 2}
                style = {"color": colour, "fmt": "o", "markersize": 5}
                ax.errorbar(own["ours"], np.array(there) + shift, label=group, **bars, **style)
            ax.axvline(0, color="0.6", linewidth=0.8, zorder=0)
            ax.set_yticks(range(len(names)), names)
            ax.set_xlabel("points of accuracy below the reference")
            dress(ax, data_set.capitalize(), grid="both")
        handles = axes[0].get_legend_handles_labels()
        drawn.legend(*handles, loc="outside lower left", ncols=2, frameon=False)
        headline(
            drawn,
            f"What privacy at epsilon {EPSILON:g} costs each group, all methods tuned alike\n"
            "bars are 2 standard errors; default is not tuned",
        )
        return drawn


def _tuned(method, split, run):
    """Return the best pair on a fifth of the training rows; tuning is not paid for."""
    inner = data.four_fifths(split.x, split.y, split.group, np.arange(len(split.y)))
    scores = {}
    for bound, step in product(BOUNDS, STEP_SIZES):
        model = _fit(method, inner, run, "cpu", bound=bound, step=step)
        scores[bound, step] = model.score(inner.x_test, inner.y_test)
    bound, step = max(scores, key=scores.get)
    return {"bound": bound, "step": step}


def _fit(name, split, run, device, bound=None, step=None):
    method, own = "global_adapt", {}
    if name != "default":
        field, params = _METHODS[name]
        method = get_method(name, **params | ({} if field is None else {field: bound}))
        own = {
            # a gradient that is as long as its bound moves the weights by step times that bound
            "lr": step if field == "max_grad_norm" else step * bound,
            "optimizer": "sgd",
            "module": "logistic",
            "batch_size": run.settings["batch"],
            "max_steps": run.settings["steps"],
            "iterate_average": 0.5,
        }
    model = DPFairClassifier(
        method,
        epsilon=run.settings["epsilon"],
        group_col=Groups(levels=list(_GROUPS)),
        classes=[0, 1],
        random_state=run.seed,
        device=device,
        **own,
    )
    return fitting.fit_in_silence(model, split)


def _right_without_privacy(split, seed):
    """Return the test records on which the better of two non-private models is right."""
    inner = data.four_fifths(split.x, split.y, split.group, np.arange(len(split.y)))
    models = (
        LogisticRegression(C=10, max_iter=1000),
        MLPClassifier((32,), early_stopping=True, max_iter=100, random_state=seed),
    )
    scores = [m.fit(inner.x, inner.y).score(inner.x_test, inner.y_test) for m in models]
    best = models[int(np.argmax(scores))].fit(split.x, split.y)
    return best.predict(split.x_test) == split.y_test


STUDIES = (Comparison(),)
