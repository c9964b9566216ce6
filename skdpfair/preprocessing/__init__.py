"""Transformers that learn nothing from the rows, or pay for it; and a search for those that do."""

from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.preprocessing._linter import Finding, PipelineReport, check_pipeline
from skdpfair.preprocessing._public import outside_public, public_preprocessor
from skdpfair.preprocessing._quantiles import DPQuantileScaler
from skdpfair.preprocessing._scaler import BoundedScaler
from skdpfair.preprocessing._schema import TableSchema, columns_of

__all__ = [
    "BoundedScaler",
    "DPQuantileScaler",
    "Finding",
    "PipelineReport",
    "PrivacyLeakWarning",
    "TableSchema",
    "check_pipeline",
    "columns_of",
    "outside_public",
    "public_preprocessor",
]
