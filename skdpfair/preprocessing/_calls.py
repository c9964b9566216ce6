"""Which calls compute a value of one row from all rows, and which stay within each row."""

from dataclasses import dataclass, field

# functions and methods that compute a value of one row from all rows, unless along axis 1
_READERS = (
    "scale minmax_scale maxabs_scale robust_scale quantile_transform power_transform zscore "
    "gzscore rankdata boxcox yeojohnson get_dummies factorize qcut cut Categorical mean nanmean "
    "average std nanstd var nanvar median nanmedian min nanmin max nanmax amin amax ptp sum "
    "nansum fsum prod nanprod product norm quantile nanquantile percentile nanpercentile mode "
    "rank nunique unique value_counts count count_nonzero any all skew kurt kurtosis sem "
    "describe groupby agg aggregate pivot_table crosstab resample rolling expanding ewm shift "
    "diff pct_change ffill bfill interpolate sort sort_values argsort sorted argmax argmin "
    "nanargmax nanargmin idxmax idxmin nlargest nsmallest partition argpartition lexsort cumsum "
    "cumprod cummax cummin nancumsum nancumprod duplicated drop_duplicates cov corr corrwith "
    "corrcoef svd histogram histogram2d histogram_bin_edges bincount set frozenset Counter "
    "std_mean var_mean fit fit_transform fit_predict"
)
# ... which take the axis as their first argument after the rows
_BY_PLACE = (
    "mean nanmean average std nanstd var nanvar median nanmedian min nanmin max nanmax amin "
    "amax ptp sum nansum prod nanprod any all nunique argsort argmax argmin nanargmax nanargmin "
    "cumsum cumprod cummax cummin nancumsum nancumprod sort idxmax idxmin rank"
)
OF_ALL_ROWS, _AXIS_FIRST = frozenset(_READERS.split()), frozenset(_BY_PLACE.split())
TAKES_FUNCTION = {"apply", "agg", "aggregate", "transform", "pipe", "map", "apply_along_axis"}
TURNED = {"T", "transpose", "swapaxes"}
UNKNOWN = object()


def along_rows(axis) -> bool:
    """Tell whether an axis is another than that of the rows."""
    if isinstance(axis, tuple):
        return bool(axis) and all(map(along_rows, axis))
    if isinstance(axis, str):
        return axis == "columns"
    return isinstance(axis, int) and not isinstance(axis, bool) and (axis >= 1 or axis == -1)


@dataclass(frozen=True)
class Value:
    """What is known of a value on the stack: a constant, a name, the attributes on the way."""

    known: object = field(default=UNKNOWN, compare=False)
    chain: tuple[str, ...] = ()
    leak: int | None = None
    made: bool = False  # by a display or a call: no number that the function was given

    @property
    def name(self):
        """The last of the names."""
        return self.chain[-1] if self.chain else ""


NOTHING = Value()


def let_off(callee, args, given):
    """Tell whether a call stays within each row although its name is on the list."""
    name, values = callee.name, [*args, *given.values()]
    if len(args) > 1 and (callee.known is min or callee.known is max):
        return True
    if values and all(value.name == "columns" for value in values):
        return True
    if isinstance(callee.known, type(sum)) and callee.known in (sum, min, max, sorted, set):
        return len(args) == 1 and args[0].made
    if name == "cut":
        bins = given.get("bins", args[1] if len(args) > 1 else NOTHING)
        listed = bins.known is not UNKNOWN and not isinstance(bins.known, int)
        return listed or bins.made
    if name == "Categorical":
        return "categories" in given
    return axis_within(callee, args, given)


def axis_within(callee, args, given):
    """Tell whether a call is seen to go along axis 1 of a table that was not turned."""
    if any(not TURNED.isdisjoint(value.chain) for value in (callee, *args)):
        return False
    axis = given.get("axis", given.get("dim"))
    if axis is None:
        place = _place_of_axis(callee)
        axis = args[place] if place is not None and place < len(args) else NOTHING
    return along_rows(axis.known)


def _place_of_axis(callee):
    if callee.name == "apply_along_axis":
        return 1
    if callee.name not in _AXIS_FIRST:
        return None
    return 0 if callee.known is UNKNOWN else 1


def names_a_reader(callee, args, given):
    """Tell whether a call names, in a text, what reads all rows."""
    texts = {v.known for v in (*args, *given.values()) if isinstance(v.known, str)}
    if callee.name == "astype":
        return "category" in texts
    if callee.name == "normalize" and "axis" in given:
        return not along_rows(given["axis"].known)
    takes = callee.name in TAKES_FUNCTION or callee.name == "getattr"
    return takes and not OF_ALL_ROWS.isdisjoint(texts) and not axis_within(callee, args, given)
