"""One training step by every engine that a user could choose, on equal batches."""

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_map_only

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.flat import FlatSGD, flatten_
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.methods import METHODS as REGISTERED
from skdpfair.training.batches import records_at

LR, CLIP = 0.05, 1.0
PRIVATE = sorted(name for name, method in REGISTERED.items() if method.private)


def tight(work):
    """Plain SGD over tensors in memory: what private training is measured against."""
    (x, y, _), module, turn = work.tensors(), work.module(), work.turn()
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def step():
        i = next(turn)
        optimizer.zero_grad()
        cross_entropy(module(x.index_select(0, i)), y.index_select(0, i)).backward()
        optimizer.step()

    return step


def ours(name, **params):
    """Return a maker of this package's step by the method ``name``."""

    def make(work):
        module, every = work.module(), Batch(*work.tensors())
        flat = flatten_(list(module.parameters()))
        optimizer = FlatSGD([flat], lr=LR)
        task = Task(work.n, work.n_groups, work.batch / work.n)
        mechanism = Mechanism(get_method(name, **params), task, 1.0)
        example = torch.zeros(1, *every.x.shape[1:], device=work.device)
        strategy, noise = select_strategy(module, example, work.n_classes), Streams.fresh()
        noise = noise.noise(work.device)
        strategy.__enter__()
        start = tree_map_only(Tensor, lambda t: t.to(work.device), mechanism.method.start(task))
        state, gradient = [start], strategy.flat()
        flat.grad = gradient
        turn = work.turn()

        @torch.no_grad()
        def step():
            batch = records_at(every, next(turn))
            state[0] = private_step(strategy, batch, mechanism, state[0], noise, out=gradient).state
            optimizer.step()

        return step

    return make


def opacus_hooks(work):
    """Opacus' default: hooks that materialise all per-record gradients."""
    (x, y, _), turn = work.tensors(), work.turn()
    module = GradSampleModule(work.module())
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=1.0,
        max_grad_norm=CLIP,
        expected_batch_size=work.batch,
    )

    def step():
        i = next(turn)
        optimizer.zero_grad()
        cross_entropy(module(x[i]), y[i]).backward()
        optimizer.step()

    return step


def opacus_ghost(work):
    """Opacus' ghost clipping: norms without gradients, and a second backward."""
    (x, y, _), turn = work.tensors(), work.turn()
    module = GradSampleModuleFastGradientClipping(
        work.module(), max_grad_norm=CLIP, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=1.0,
        max_grad_norm=CLIP,
        expected_batch_size=work.batch,
    )
    criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

    def step():
        i = next(turn)
        optimizer.zero_grad()
        criterion(module(x[i]), y[i]).backward()
        optimizer.step()

    return step


def func_vmap(work):
    """torch.func's vmap of grad, clipped and noised by hand."""
    (x, y, _), module, turn = work.tensors(), work.module(), work.turn()
    params = {k: p.detach() for k, p in module.named_parameters()}

    def loss(params, x, y):
        return cross_entropy(functional_call(module, params, (x[None],)), y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    @torch.no_grad()
    def step():
        i = next(turn)
        rows = each(params, x[i], y[i])
        norm = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
        weight = (CLIP / norm).clamp(max=1.0)
        for name, p in params.items():
            total = torch.einsum("i,i...->...", weight, rows[name])
            p.sub_((total + CLIP * torch.randn_like(p)) * (LR / work.batch))

    return step


BASELINES = {
    "tight torch, not private": tight,
    "dpsgd": ours("dpsgd", max_grad_norm=CLIP),
    "Opacus ghost clipping": opacus_ghost,
    "Opacus hooks": opacus_hooks,
    "torch.func vmap": func_vmap,
}
METHODS = {name: ours(name) for name in PRIVATE if name != "dpsgd"}
