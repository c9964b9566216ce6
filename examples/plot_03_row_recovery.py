"""
Recover training rows from a pickle, and verify a release
=========================================================

Opacus stores the per-record gradients of the last batch on the parameters. The gradient of a linear
layer contains the record itself. A pickle of the trained module therefore reveals rows, whatever
its epsilon.

Tag: reference.
"""

# %%
# Two steps of DP-SGD on a softmax regression, with Opacus.

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
# itself for the bias. Whoever has the pickle computes x = (weight gradient)_k / r_k for any class
# k.

stolen = pickle.loads(content)
outer, r = stolen.weight.grad_sample, stolen.bias.grad_sample
k = r.abs().argmax(dim=1)
rows = torch.arange(len(r))
recovered = outer[rows, k] / r[rows, k, None]
error = (recovered - inputs).abs().max().item()
print(f"{len(recovered)} rows recovered, largest error {error:.1e}")

# %%
# A release of this package contains weights and public facts only, whatever the classifier holds
# in memory. Its file is read as data, held against the list of what a release has, and written
# again: the bytes must be the same.

clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp")
clf.fit(data.data, data.target)
path = tempfile.mkdtemp() + "/model.safetensors"
clf.save_release(path)
verify_release(path)

# %%
# Rows behind the weights are refused.

with open(path, "ab") as file:
    file.write(recovered.numpy().tobytes())
try:
    verify_release(path)
except ValueError as error:
    print(type(error).__name__)

# %%
# Every recovered number lies on the diagonal.

figure, axes = plt.subplots(figsize=(4, 4))
axes.plot(inputs.ravel(), recovered.ravel(), ".")
axes.axline((0, 0), slope=1, linewidth=0.8, color="grey")
axes.set(xlabel="feature of a training record", ylabel="recovered from the pickle")
figure.tight_layout()
