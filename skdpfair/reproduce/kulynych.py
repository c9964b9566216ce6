"""Table 9 of Kulynych et al.: disparity of private methods on Adult, groups of sex and label."""

import numpy as np

from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.methods import get_method
from skdpfair.privacy import PrivacyPlan
from skdpfair.reproduce import _fits
from skdpfair.reproduce._data import Split
from skdpfair.reproduce._study import SHARE, Run, Study, cell, cells_of, claim, rows_of
from skdpfair.reproduce._tables import printed

EPOCHS, ACCOUNTED = 20, 4  # the paper trains 20 epochs, and accounts for 800 steps
N_TRAIN, N_TEST = 40_000, 5_842  # 3,000 more are for validation
_C, _SIGMA = 0.5, {"dpsgd": 1.0, "dpsgd_f": 1.0, "dp_is_sgd": 5.0}
_ROWS = ("sgd", "dpsgd", "dpsgd_f", "dp_is_sgd")
# Table 7: women below and above 50K, men below and above; in the order of the group names
_SIZES = {"female <=50K": 11_763, "female >50K": 1_444, "male <=50K": 18_700, "male >50K": 8_093}


def runs(options):
    """Return a run for each row and seed."""
    rows = options.rows or _ROWS
    epochs = options.epochs or (EPOCHS if options.sound else ACCOUNTED)
    return [Run(row, seed, {"epochs": epochs}) for row in rows for seed in options.seeds]


def split_of(seed) -> Split:
    """Return all of Adult, without sex, numbers z-scored; groups are sex and label.

    The scale is that of all rows: a leak, as in the other papers.  Nothing in print says so, but
    with numbers in [0, 1] every row but DPSGD-F's is far off.
    """
    data = load_adult()
    numbers = data.data[list(ADULT_BOUNDS)]
    numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
    categories = {k: v for k, v in ADULT_CATEGORIES.items() if k != "sex"}
    one_hot = [data.data[k] == level for k, levels in categories.items() for level in levels]
    x = np.column_stack([numbers, *one_hot]).astype(np.float32)
    y = (data.target == ">50K").to_numpy().astype(int)
    sex = data.sensitive_features["sex"].astype(str).str.lower()
    group = (sex + " " + data.target.astype(str)).to_numpy(dtype=str)
    rows = np.random.default_rng(seed).permutation(len(y))
    train, test = rows[:N_TRAIN], rows[-N_TEST:]
    return Split(x[train], y[train], group[train], x[test], y[test], group[test])


def measure(run, device):
    """Train a row at one seed; return disparity, accuracy, and epsilon."""
    return trained(run.row, split_of(run.seed), run.seed, run.settings["epochs"], device)


def trained(row, split, seed, epochs=EPOCHS, device="cpu"):
    """Train a row on a split; return what `measure` does."""
    sigma = _SIGMA.get(row)
    params = {} if sigma is None else {"max_grad_norm": _C}
    if row == "dpsgd_f":
        params["count_noise_multiplier"] = 10 * sigma
    if row == "dp_is_sgd":
        sizes = np.array(list(_SIZES.values()))
        params["group_probabilities"] = (sizes / sizes.sum()).tolist()
    model, _ = _fits.fit(
        get_method(row, **params),
        split,
        seed,
        sigma=sigma,
        epochs=epochs,
        batch_size=256 if sigma is None else 200,
        module="logistic",
        lr=0.1,
        optimizer="sgd",
        optimizer_params={"momentum": 0.9, "weight_decay": 0.01},
        delta=1 / (2 * N_TRAIN),
        groups=list(_SIZES),
        device=device,
    )
    found = _fits.group_accuracies(model, split)
    overall = found.pop("all")
    return {
        "accuracy_disparity": max(found.values()) - min(found.values()),
        "overall_accuracy": overall,
        "epsilon": model.privacy_.epsilon,
    } | {f"accuracy[{group}]": value for group, value in found.items()}


def cells(frame, options):
    """Compare disparity and accuracy with the table."""
    table = printed("kulynych2022_table9_adult").set_index("method")
    found = []
    for row in _ROWS:
        own = frame[frame["row"] == row]
        for measure in ("accuracy_disparity", "overall_accuracy") if len(own) else ():
            paper, error = table.loc[row, measure], table.loc[row, f"{measure}_se"]
            found.append(cell(row, measure, own[measure], paper, error, SHARE))
    return cells_of(found)


def claims(frame, options):
    """Judge the orderings of the table."""
    rows = rows_of(frame)
    found = []
    for larger, smaller in (("dpsgd", "sgd"), ("dpsgd_f", "dp_is_sgd")):
        if larger in rows and smaller in rows:
            gap = rows[larger]["accuracy_disparity"] - rows[smaller]["accuracy_disparity"]
            found.append(claim(f"{larger} is more disparate than {smaller}", gap, unit="share"))
    return found


def notes(options):
    """Return what a reader must know."""
    table = printed("kulynych2022_table9_adult").dropna(subset="epsilon")
    claimed = ", ".join(f"{row.method} {row.epsilon:g}" for row in table.itertuples())
    return [
        f"The paper trains {EPOCHS} epochs (4,000 steps at rate .005) and prints the epsilon of "
        f"800 steps by a central limit theorem: {claimed}. By PLD, 800 steps cost "
        f"{_cost(800, 1.0):.3f} (dpsgd), {_cost(800, 1.0, 10.0):.3f} (dpsgd_f) and "
        f"{_cost(800, 5.0, rate=_rarest()):.3f} (dp_is_sgd, at the rate {_rarest():.4f} of its "
        f"rarest group); 4,000 steps cost {_cost(4000, 1.0):.3f}, {_cost(4000, 1.0, 10.0):.3f} and "
        f"{_cost(4000, 5.0, rate=_rarest()):.3f}, all at delta 1/80,000.",
        _length(options),
        "The paper does not say how features were encoded; here numbers are z-scored with the "
        "statistics of all rows (a leak), categories are one-hot, and sex is no feature. The "
        "shares of the groups (its Table 7) count as public.",
    ]


def _length(options):
    if options.epochs is not None:
        return f"These runs take {options.epochs} epochs."
    if options.sound:
        return f"These runs take {EPOCHS} epochs, as the text says."
    return f"These runs take {ACCOUNTED} epochs: those that the printed epsilon is for."


def _rarest():
    shares = np.array(list(_SIZES.values())) / sum(_SIZES.values())
    return float(0.005 / (len(shares) * shares.min()))


def _cost(steps, *noise, rate=0.005):
    plan = PrivacyPlan(steps=steps, sample_rate=rate, noise_multipliers=noise)
    return plan.epsilon(delta=1 / (2 * N_TRAIN))


STUDIES = (
    Study(
        name="kulynych-table9",
        title="Adult: accuracy disparity over groups of sex and label",
        source="Kulynych et al., NeurIPS 2022, Table 9",
        runs=runs,
        measure=measure,
        cells=cells,
        rows=_ROWS,
        epochs=EPOCHS,
        notes=notes,
        claims=claims,
    ),
)
