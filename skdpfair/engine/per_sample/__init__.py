"""Norms and weighted sums of per-record gradients, by the cheapest strategy that is exact."""

from skdpfair.engine.per_sample.closed_form import ClosedForm as ClosedForm
from skdpfair.engine.per_sample.closed_form import forward_of as forward_of
from skdpfair.engine.per_sample.closed_form import linear_layers as linear_layers
from skdpfair.engine.per_sample.records import Gradients as Gradients
from skdpfair.engine.per_sample.records import Strategy as Strategy
from skdpfair.engine.per_sample.records import capped as capped
from skdpfair.engine.per_sample.records import gradients_of_rows as gradients_of_rows
from skdpfair.engine.per_sample.records import in_two_passes as in_two_passes
from skdpfair.engine.per_sample.records import norms as norms
from skdpfair.engine.per_sample.selection import select_strategy as select_strategy
