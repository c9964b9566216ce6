"""
Recover training rows from a pickle, and verify a release
=========================================================

Opacus stores the per-record gradients of the last batch on the parameters. The gradient of a linear
layer contains the record itself. So a pickle of the trained module reveals rows at any epsilon.
"""

# %%
# Opacus makes two steps of DP-SGD on a softmax regression.

import pickle
import tempfile
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.testing import verify_release

warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook|Optimal order")
data = make_two_groups(2000, random_state=0)
X, y = torch.tensor(np.array(data.data, dtype=np.float32)), torch.tensor(np.array(data.target))

model = nn.Linear(X.shape[1], 2)
model, optimizer, batches = PrivacyEngine().make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
    data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=40),
    noise_multiplier=1.0,
    max_grad_norm=1.0,
)
for _, (inputs, targets) in zip(range(2), batches, strict=False):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
content = pickle.dumps(model._module)

# %%
# The gradient of one record x is the outer product of a vector r with x for the weight, and r
# itself for the bias. An attacker who has the pickle computes x = (weight gradient)_k / r_k for any
# class k.

stolen = pickle.loads(content)
outer, r = stolen.weight.grad_sample, stolen.bias.grad_sample
k = r.abs().argmax(dim=1)
rows = torch.arange(len(r))
recovered = outer[rows, k] / r[rows, k, None]
error = (recovered - inputs).abs().max().item()
print(f"{len(recovered)} rows recovered, largest error {error:.1e}")

# %%
# A release of this package contains only weights and public facts. ``verify_release`` reads the
# file as data, compares its entries with the list of entries that a release may have, and writes
# them again. The bytes must be those of the file.

clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp")
clf.fit(data.data, data.target)
path = tempfile.mkdtemp() + "/model.safetensors"
clf.save_release(path)
verify_release(path)

# %%
# ``verify_release`` refuses a file to which rows were added.

with open(path, "ab") as file:
    file.write(recovered.numpy().tobytes())
try:
    verify_release(path)
except ValueError as error:
    print(type(error).__name__)

# %%
# All points lie on the diagonal: the attacker recovers every number.

figure, axes = plt.subplots(figsize=(4, 4))
axes.plot(inputs.ravel(), recovered.ravel(), ".")
axes.axline((0, 0), slope=1, linewidth=0.8, color="grey")
axes.set(xlabel="feature of a training record", ylabel="recovered from the pickle")
figure.tight_layout()
