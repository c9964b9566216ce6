"""Transformers for private rows, with public or private statistics, and a linter of pipelines."""

from skdpfair.preprocessing._linter import lint_pipeline
from skdpfair.preprocessing._outside_public import outside_public
from skdpfair.preprocessing._public_bounds import BoundedScaler
from skdpfair.preprocessing._public_preprocessor import public_preprocessor
from skdpfair.preprocessing._quantile_scaler import DPQuantileScaler
from skdpfair.preprocessing._schema import TableSchema

__all__ = [
    "BoundedScaler",
    "DPQuantileScaler",
    "TableSchema",
    "lint_pipeline",
    "outside_public",
    "public_preprocessor",
]
