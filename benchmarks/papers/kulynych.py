"""Kulynych et al. on Adult, in groups of sex and label: disparity, and worst groups' DG gaps."""

from dataclasses import replace
from functools import cache
from operator import itemgetter

import numpy as np

from benchmarks.papers import fitting
from benchmarks.papers.data import Split
from benchmarks.papers.study import SHARE, Study, cell, claim, printed
from skdpfair import DPFairClassifier, Factory, Groups, get_method
from skdpfair.datasets import load_adult, public_facts
from skdpfair.privacy import NoisyRelease, compute_epsilon

EPOCHS, ACCOUNTED = 20, 4  # the paper trains 20 epochs, and accounts for 800 steps
N_TRAIN, N_TEST = 40_000, 5_842  # 3,000 more are for validation
_C, _SIGMA = 0.5, {"dpsgd": 1.0, "dpsgd_f": 1.0, "dp_is_sgd": 5.0}
_NUMBERS = ["education_num", "capital_gain", "capital_loss", "hours_per_week"]
# Table 7: women below and above 50K, men below and above; in the order of the group names
SIZES = {"female <=50K": 11_763, "female >50K": 1_444, "male <=50K": 18_700, "male >50K": 8_093}


def split_of(seed) -> Split:
    """Return all of Adult with the 86 features of the paper's code; groups are sex and label.

    Four numbers, z-scored with the statistics of all rows (a leak, as in the other papers), sex,
    and the other categories but education, one-hot.  An unknown category is no column.
    """
    data = load_adult()
    numbers = data.data[_NUMBERS]
    numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
    categories = public_facts("adult")["categories"]
    del categories["education"], categories["sex"]
    one_hot = [data.data[k] == level for k, levels in categories.items() for level in levels]
    man = data.sensitive_features["sex"] == "Male"
    x = np.column_stack([numbers, man, *one_hot]).astype(np.float32)
    y = (data.target == ">50K").to_numpy().astype(int)
    sex = data.sensitive_features["sex"].astype(str).str.lower()
    group = (sex + " " + data.target.astype(str)).to_numpy(dtype=str)
    rows = np.random.default_rng(seed).permutation(len(y))
    train, test = rows[:N_TRAIN], rows[-N_TEST:]
    return Split(x[train], y[train], group[train], x[test], y[test], group[test])


def trained(row, split, seed, epochs=EPOCHS, device="cpu", *, lr=0.1, momentum=0.9):
    """Train a row on a split; return disparity, accuracy, and epsilon."""
    sigma = _SIGMA.get(row)
    params = {} if sigma is None else {"max_grad_norm": _C}
    if row == "dpsgd_f":
        params["count_noise_multiplier"] = 10 * sigma
    if row == "dp_is_sgd":
        sizes = np.array(list(SIZES.values()))
        params["group_probabilities"] = (sizes / sizes.sum()).tolist()
    model, _ = fitting.fit(
        get_method(row, **params),
        split,
        seed,
        sigma=sigma,
        epochs=epochs,
        batch_size=256 if sigma is None else 200,
        module="logistic",
        lr=lr,
        optimizer=Factory("SGD", momentum=momentum, weight_decay=0.01),
        delta=1 / (2 * N_TRAIN),
        group_col=Groups(levels=list(SIZES)),
        device=device,
    )
    found = fitting.group_accuracies(model, split)
    overall = found.pop("all")
    return {
        "accuracy_disparity": max(found.values()) - min(found.values()),
        "overall_accuracy": overall,
        "epsilon": model.privacy_.epsilon,
    } | {f"accuracy[{group}]": value for group, value in found.items()}


class Table9(Study):
    """Accuracy disparity and accuracy of four methods."""

    name = "kulynych-table9"
    title = "Adult: accuracy disparity over groups of sex and label"
    source = "Kulynych et al., NeurIPS 2022, Table 9"
    rows = ("sgd", "dpsgd", "dpsgd_f", "dp_is_sgd")
    epochs = EPOCHS
    differs_as_published = True

    def settings(self, row, options):
        """Return the epochs: the text's, or as published those that are accounted for."""
        return {"epochs": options.epochs or (EPOCHS if options.sound else ACCOUNTED)}

    def measure(self, run, device):
        """Train a row at one seed."""
        return trained(run.row, split_of(run.seed), run.seed, run.settings["epochs"], device)

    def cells(self, rows):
        """Yield disparity and accuracy, beside the table's, which comes from one split.

        Its standard errors of SGD are .000 over five seeds.  So its distance from a mean over
        splits has the standard deviation of a split in it, for which that of ours is taken.
        """
        table = printed("kulynych2022_table9_adult").set_index("method")
        for row, own in rows.items():
            for measure in ("accuracy_disparity", "overall_accuracy"):
                paper = table.loc[row, measure]
                error = np.hypot(table.loc[row, f"{measure}_se"], own[measure].std())
                yield cell(row, measure, own[measure], SHARE, paper, error)

    def claims(self, rows):
        """Judge the orderings of the table."""
        disparity = {row: own["accuracy_disparity"] for row, own in rows.items()}
        return [
            claim(
                f"{larger} is more disparate than {smaller}",
                disparity[larger] - disparity[smaller],
                unit="share",
            )
            for larger, smaller in (("dpsgd", "sgd"), ("dpsgd_f", "dp_is_sgd"))
            if {larger, smaller} <= rows.keys()
        ]

    def notes(self, options):
        """Return the true epsilons, and the choices that the paper leaves open."""
        table = printed("kulynych2022_table9_adult").dropna(subset="epsilon")
        claimed = ", ".join(f"{row.method} {row.epsilon:g}" for row in table.itertuples())
        rarest = rarest_rate()
        if options.epochs is not None:
            length = f"These runs take {options.epochs} epoch{'s' * (options.epochs > 1)}."
        elif options.sound:
            length = f"These runs take {EPOCHS} epochs, as the text says."
        else:
            length = f"These runs take {ACCOUNTED} epochs: those that the printed epsilon is for."
        return [
            f"The paper trains {EPOCHS} epochs (4,000 steps at rate .005) and prints the epsilon "
            f"of 800 steps by a central limit theorem: {claimed}. By PLD, 800 steps cost "
            f"{cost(800, 1.0):.3f} (dpsgd), {cost(800, 1.0, 10.0):.3f} (dpsgd_f) and "
            f"{cost(800, 5.0, rate=rarest):.3f} (dp_is_sgd, at the rate {rarest:.4f} of its "
            f"rarest group); 4,000 steps cost {cost(4000, 1.0):.3f}, {cost(4000, 1.0, 10.0):.3f} "
            f"and {cost(4000, 5.0, rate=rarest):.3f}, all at delta 1/80,000.",
            length,
            "The paper does not say how features were encoded. Here they are the 86 of its code: "
            "sex, four z-scored numbers without age (with the statistics of all rows, a leak), and "
            "one-hot categories without education. The shares of the groups (its Table 7) count as "
            "public.",
            "The paper's seeds share one split, since SGD has standard errors of .000: its errors "
            "include the standard deviation between the splits of these runs.",
        ]


def rarest_rate():
    """Return the sampling rate of the rarest group under dp_is_sgd."""
    return 0.005 * sum(SIZES.values()) / (len(SIZES) * min(SIZES.values()))


@cache
def cost(steps, *noise, rate=0.005):
    """Return the epsilon of steps that release one Gaussian sum for each noise multiplier."""
    return compute_epsilon([NoisyRelease("steps", rate, noise, steps)], 1 / (2 * N_TRAIN))


_FEW, _LONG = 1000, 100  # records to train on, and epochs: a network learns many of them by heart
_GROUPS = list(SIZES)
_SHARE = {"unit": "share"}


def few_of(seed) -> Split:
    """Return the first 1,000 records of `split_of` to train on, and all of its test records."""
    whole = split_of(seed)
    train = (values[:_FEW] for values in (whole.x, whole.y, whole.group))
    return Split(*train, whole.x_test, whole.y_test, whole.group_test)


def overfitted(method, seed, split, *, device, epochs=_LONG, l2=0.0, noise=0.0, epsilon=None):
    """Train a network on few records, of which it learns many by heart.

    ``noise`` is the standard deviation of that on the mean gradient, of the "-n" variants.
    """
    params = {"gradient_noise": noise} if noise else {}
    if epsilon is not None:
        params["max_grad_norm"] = 1.0
    if method == "dp_is_sgd":
        sizes = np.array(list(SIZES.values()))
        params["group_probabilities"] = (sizes / sizes.sum()).tolist()
    model = DPFairClassifier(
        get_method(method, **params),
        epsilon=epsilon,
        delta=1 / (2 * _FEW),
        group_col=Groups(levels=_GROUPS),
        module="mlp",
        batch_size=64,
        max_epochs=epochs,
        lr=0.1 if epsilon is None else 0.05,
        optimizer=Factory("SGD", momentum=0.9, weight_decay=l2),
        iterate_average=0.0,
        random_state=seed,
        device=device,
    )
    return fitting.fit_in_silence(model, split)


def group_facts(model, split) -> dict[str, float]:
    """Return each group's accuracy on training and test records, and the worst group's gap."""
    seen = replace(split, x_test=split.x, y_test=split.y, group_test=split.group)
    found = {}
    for where, part in (("train", seen), ("test", split)):
        accuracies = fitting.group_accuracies(model, part)
        del accuracies["all"]
        found[f"worst, {where}"] = min(accuracies.values())
        found |= {f"{group}, {where}": value for group, value in accuracies.items()}
    return found | {"gap": found["worst, train"] - found["worst, test"]}


class WorstGroups(Study):
    """Accuracies of the worst group on training and test records, and the gap between them.

    Parameters
    ----------
    name, title, source : str
        See Study.
    settings_of : dict
        The options of `overfitted` of each row, "method" among them.
    orders : tuple of (str, str, str, str)
        Claims: in words, a measure, the row where it is larger, and the one where it is smaller.
    measures : tuple of str
        What the table shows.
    """

    def __init__(self, name, title, source, settings_of, orders, measures=None):
        self.name, self.source = name, f"Kulynych et al., NeurIPS 2022, {source}"
        self.title = f"Adult, 1,000 records: {title}"
        self.settings_of, self.orders = settings_of, orders
        self.measures = measures or ("worst, train", "worst, test", "gap")
        self.rows = tuple(settings_of)

    def settings(self, row, options):
        """Return the options of a row."""
        return {"epochs": _LONG} | self.settings_of[row]

    def measure(self, run, device):
        """Train a row at one seed."""
        options = dict(run.settings)
        method = options.pop("method")
        split = few_of(run.seed)
        model = overfitted(method, run.seed, split, device=device, **options)
        return group_facts(model, split)

    def cells(self, rows):
        """Yield the accuracies; nothing of this data set is in print."""
        for row, own in rows.items():
            for measure in self.measures:
                yield cell(row, measure, own[measure], SHARE)

    def claims(self, rows):
        """Judge the orders of the paper."""
        return [
            claim(said, rows[larger][measure] - rows[smaller][measure], **_SHARE)
            for said, measure, larger, smaller in self.orders
            if {larger, smaller} <= rows.keys()
        ]

    def notes(self, options):
        """Return the settings, which are not the paper's."""
        return [
            f"The paper trains on CelebA, UTKFace and others. Here a network of two layers of 256 "
            f"is trained on {_FEW:,} records of Adult, {_LONG} epochs unless others are named; the "
            "groups are those of Table 9.",
            "The gap is the accuracy of the worst group on training records minus that of the "
            "worst group on test records (Definition E.1).",
        ]


class Tuned(WorstGroups):
    """The worst group's accuracy of methods with weight decay, and with noise, both chosen."""

    values = (0.0001, 0.001, 0.01, 0.1)

    def settings(self, row, options):
        """Return the options of a row, and the values to choose from."""
        return super().settings(row, options) | {"values": self.values}

    def measure(self, run, device):
        """Train a row with each value at one seed; return the one that half of the test chooses."""
        options, split, found = dict(run.settings), few_of(run.seed), []
        method, tuned, values = (options.pop(key) for key in ("method", "tuned", "values"))
        half = len(split.y_test) // 2
        parts = [
            replace(
                split, **{k: getattr(split, k)[rows] for k in ("x_test", "y_test", "group_test")}
            )
            for rows in (slice(half), slice(half, None))
        ]
        for value in values:
            given = options | {tuned: value, "device": device}
            model = overfitted(method, run.seed, split, **given)
            chosen, tested = (group_facts(model, part) for part in parts)
            found.append((chosen["worst, test"], tested | {"value": value}))
        return max(found, key=itemgetter(0))[1]


def _rows(method, **lists):
    """Return rows of one method, one for each value of each option."""
    names = {"l2": "weight decay", "epochs": "epochs", "epsilon": "epsilon"}
    return {
        f"{names[option]} {value:g}": {"method": method, option: value}
        for option, values in lists.items()
        for value in values
    }


_BY_EPSILON = _rows("dpsgd", epsilon=(1.0, 3.0, 10.0, 30.0, 100.0)) | {"sgd": {"method": "sgd"}}
_BY_OTHERS = {
    method: _rows(method, l2=(0.0, 0.003, 0.01, 0.03), epochs=(3, 10, 30))
    for method in ("sgd", "is_sgd")
}
_ORDERS = (
    ("weight decay makes the gap smaller", "gap", "weight decay 0", "weight decay 0.03"),
    ("fewer epochs make the gap smaller", "gap", "weight decay 0", "epochs 3"),
)
_ALONE = {name: {"method": name} for name in ("sgd", "iw_sgd", "is_sgd")}
_ALONE |= {name: {"method": name, "epsilon": 8.0} for name in ("dpsgd", "dp_is_sgd")}
_PAIRS = [(name, short) for name in ("is_sgd", "iw_sgd", "gdro") for short in ("l2", "n")]

STUDIES = (
    Table9(),
    Tuned(
        "kulynych-table1",
        "worst groups with weight decay and with noisy gradients",
        "Table 1",
        {
            f"{name}-{short}": {"method": name, "tuned": "l2" if short == "l2" else "noise"}
            for name, short in _PAIRS
        },
        tuple(
            (f"{name}-n is better than {name}-l2", "worst, test", f"{name}-n", f"{name}-l2")
            for name in ("is_sgd", "iw_sgd", "gdro")
        ),
    ),
    WorstGroups(
        "kulynych-table8",
        "importance sampling on an over-fitted network",
        "Figure 1 and Table 8",
        _ALONE,
        (
            ("is_sgd has a larger gap than dp_is_sgd", "gap", "is_sgd", "dp_is_sgd"),
            (
                "dp_is_sgd is better than is_sgd on the worst group",
                "worst, test",
                "dp_is_sgd",
                "is_sgd",
            ),
            (
                "dp_is_sgd is better than dpsgd on the worst group",
                "worst, test",
                "dp_is_sgd",
                "dpsgd",
            ),
        ),
    ),
    WorstGroups(
        "kulynych-figure3",
        "gap of the worst group by epsilon",
        "Figures 3 and 6a",
        _BY_EPSILON,
        (
            ("epsilon 1 has a smaller gap than no privacy", "gap", "sgd", "epsilon 1"),
            ("epsilon 1 has a smaller gap than epsilon 100", "gap", "epsilon 100", "epsilon 1"),
        ),
    ),
    WorstGroups(
        "kulynych-figure6",
        "gap of the worst group by weight decay and epochs, sgd",
        "Figures 6b and 6c",
        _BY_OTHERS["sgd"],
        _ORDERS,
    ),
    WorstGroups(
        "kulynych-figure7",
        "gap of the worst group by weight decay and epochs, is_sgd",
        "Figure 7",
        _BY_OTHERS["is_sgd"],
        _ORDERS,
    ),
)
