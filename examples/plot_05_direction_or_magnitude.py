"""
Direction error and magnitude error of clipping
===============================================

Clipping shortens the gradient of a batch and changes its direction. In this example, a softmax
regression is trained without noise by steps that have only one of these two errors. The results are
not private.

Tag: research.
"""

# %%
# The labels of the two groups follow different boundaries, and the smaller group has longer
# gradients.

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
# All runs of a seed have the same initial weights, batches and learning rate. There are five seeds.

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
# The figure shows the loss of each group by the error of the training steps.

errors = table.groupby(["error", "group"], sort=False)["loss"].sem().unstack()
ax = means.plot.bar(yerr=2 * errors, rot=0, figsize=(7, 4), color=["#0072B2", "#E69F00"])
ax.set(ylabel="running train loss (not private)", xlabel="error of the steps")
plt.show()
