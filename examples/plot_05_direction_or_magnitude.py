"""
Direction or magnitude: which error of clipping hurts?
======================================================

Clipping makes a batch's gradient shorter, and turns it. Here a softmax regression is trained
without noise by steps that have only one of the two errors. None of it is private.
"""

# %%
# Two groups whose labels follow different boundaries; the smaller one has longer gradients.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from skdpfair import get_method
from skdpfair.analysis import train_with_error
from skdpfair.datasets import make_two_groups

data = make_two_groups(6000, minority=0.1, random_state=0)
X = data.data.to_numpy(np.float32) * np.where(data.sensitive_features == "b", 3, 1)[:, None]
X, y = X.astype(np.float32), (data.target == data.target.max()).to_numpy().astype(int)
method = get_method("dpsgd", max_grad_norm=0.3)

# %%
# The same initial weights, batches and learning rate for each; five seeds.

rows = []
for seed in range(5):
    torch.manual_seed(seed)
    module = torch.nn.Linear(X.shape[1], 2)
    for error in ("none", "magnitude", "direction", "both"):
        run = train_with_error(
            module,
            X,
            y,
            method,
            error=error,
            lr=0.3,
            n_epochs=10,
            sensitive_features=data.sensitive_features,
            random_state=seed,
        )
        rows += [(error, seed, group, row["loss"]) for group, row in run.losses.iterrows()]
table = pd.DataFrame(rows, columns=["error", "seed", "group", "loss"])
means = table.pivot_table(index="error", columns="group", values="loss", sort=False)
print(means.round(3))

# %%
# Loss of each group by the error that its training had.

errors = table.groupby(["error", "group"], sort=False)["loss"].sem().unstack()
ax = means.plot.bar(yerr=2 * errors, rot=0, figsize=(7, 4), color=["#0072B2", "#E69F00"])
ax.set(ylabel="running train loss (not private)", xlabel="error of the steps")
plt.show()
