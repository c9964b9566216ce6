"""
Accuracy against epsilon: a sweep of methods, budgets and seeds
===============================================================

Which method, and at which budget? A sweep trains all of them beside a non-private twin, and shows
what each group pays. It reads the records without noise: it is for public data, or for research.
"""

# %%
# 6,000 rows of Adult, prepared by public bounds and categories. The groups are women and men.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.model_selection import sweep
from skdpfair.plotting import TradeoffDisplay
from skdpfair.preprocessing import public_preprocessor

adult = load_adult(subset="train").frame.head(6000)
preprocessor = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES)
X = preprocessor.fit_transform(adult)

# %%
# Three methods at three budgets. A seed decides the split, the weights, the batches and the noise,
# so that every method meets the same test records; such seeds are for research only, as whoever
# knows them can remove the noise. Two keep this page short: take five or more for a result.

results = sweep(
    ["dpsgd", "global_adapt", "dpsgd_f"],
    [0.5, 2.0, 8.0],
    2,
    X,
    adult["income"],
    adult["sex"],
    module="logistic",
    accountant="rdp",
    max_steps=100,
    progress=False,
)
print(results)

# %%
# Accuracy, and how far apart women and men are in what privacy costs them. Where bands overlap, the
# sweep does not tell which method is better.

figure, axes = plt.subplots(2, 1, figsize=(8, 8.5), layout="constrained")
figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
for ax, measure in zip(axes, ("accuracy", "privacy_cost_difference"), strict=True):
    TradeoffDisplay.from_results(results, measure=measure).plot(ax=ax)

# %%
# On the Pareto front are the private models that no other one beats in both. It is made from the
# means: models within a standard error of it may be as good.

front = results.pareto_front("accuracy", "privacy_cost_difference")
print((100 * front).round(1).set_axis(["accuracy (%)", "privacy cost gap (points)"], axis=1))

# %%
# The whole comparison as one page of HTML, for whoever may see figures that are not private. With
# the pipeline given, the page also tells what the linter finds in it.

page = Path(tempfile.mkdtemp()) / "report.html"
results.to_html(page, title="Adult, by sex", pipeline=preprocessor)
print(f"{page.name}: {page.stat().st_size / 1024:.0f} KiB, without scripts or requests")
