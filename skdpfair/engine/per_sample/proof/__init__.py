"""The proof that records do not meet: `prove` for a module, `RecordTrace` for any other function.

The code of a function of one record is traced once, on a made-up record (`tracing`), into
operations of a closed list (`operations`).  Each is tried on several records (`trace_checks`), all
are carried out on whole batches by rules of torch (`record_trace`), and no code sees a record of
the data.  Nobody outside imports the files of this package.
"""

from skdpfair.engine.per_sample.proof.alone import ConstantDraws as ConstantDraws
from skdpfair.engine.per_sample.proof.alone import fixed_draws as fixed_draws
from skdpfair.engine.per_sample.proof.alone import (
    same_alone_and_together as same_alone_and_together,
)
from skdpfair.engine.per_sample.proof.frozen_statistics import hold_statistics as hold_statistics
from skdpfair.engine.per_sample.proof.module_checks import perturbed_copy as perturbed_copy
from skdpfair.engine.per_sample.proof.module_checks import training_copy as training_copy
from skdpfair.engine.per_sample.proof.module_code import ModuleCode as ModuleCode
from skdpfair.engine.per_sample.proof.module_code import prove as prove
from skdpfair.engine.per_sample.proof.operations import TraceError as TraceError
from skdpfair.engine.per_sample.proof.record_trace import RecordTrace as RecordTrace
from skdpfair.engine.per_sample.proof.tracing import trace as trace
