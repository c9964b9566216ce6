"""The privacy report of a fit: its cost, its assumptions and its limits."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpfair._utils import cards
from skdpfair._utils.validate import integer
from skdpfair.privacy import tradeoff
from skdpfair.privacy.accounting import compute_epsilon
from skdpfair.privacy.releases import MAX_RECORDS, NoisyRelease
from skdpfair.privacy.renyi import ORDERS

ADJACENCY_IN_WORDS = {
    "zero_out": "two data sets are neighbours if one equals the other with one record replaced by "
    "a null record, which contributes nothing; the number of records is public",
    "zero_out_person": "two data sets are neighbours if one equals the other with all records of "
    "one person replaced by null records, which contribute nothing; the number of persons is "
    "public",
}
PROTECTS = {"zero_out": "record", "zero_out_person": "person"}  # what a fit protects
PROTECTED = {"record": "one record", "person": "all records of one person"}
CHANGED = {
    "record": "including or excluding one record",
    "person": "replacing all records of one person by null records",
}
MEMBERS = {"record": "records that were used", "person": "persons whose records were used"}
SEVERAL_RECORDS = (
    "several records of one person: epsilon is for one record, epsilon_for(n) for n of them"
)
OTHER_FITS = "other fits on the same records: their cost comes in addition"
# what is not covered, and after the first colon what to do about it
NOT_ACCOUNTED = (
    "preprocessing fitted on the data (scalers, encoders, imputers, feature selection, "
    "resampling): use public bounds and categories; lint_pipeline finds such steps",
    "choices made by looking at results on this data (method, epsilon, hyper-parameters, "
    "features): choose before the fit, or with DPRandomizedSearch",
    OTHER_FITS,
    "tables, scores and figures computed on private records: do not publish them; "
    "release_group_table makes private ones",
    SEVERAL_RECORDS,
    "floating point: the guarantee holds for real arithmetic",
    "side channels: timing and memory are observable while a model is trained",
)
DEVICE_NOISE = (
    "noise generator: on a GPU, the noise of the steps comes from torch's generator, which is "
    "statistical, not cryptographic; device='cpu' takes AES-256"
)

ASSUMPTIONS = {
    "n": "the number of records n is public",
    "bounds": "the bounds are public",
    "group probabilities": "the shares of the groups (group_probabilities) are public",
    "classes": "the set of classes is public (it was taken from y; declare classes=)",
    "y_range": "y_range, the limits of the target, is public",
    "limits": "the smallest and the largest target are public (y_range was taken from y; declare "
    "y_range=)",
    "groups": "the set of groups, if any, is public (declare the levels of Groups)",
    "sets": "the number of records n is public, and so are the sets of classes and of groups",
    "counts": "group_epsilons depend on sampling rates chosen from the noisy group counts: before "
    "the fit, only the overall epsilon holds for all groups",
    "validation": "validation_data holds public records only",
    "module": "the code and the initial weights of the module are public",
    "method": "what the method makes of a record depends on that record and on released values "
    "only, as it does for made-up records (its code cannot be traced)",
    "weights": "the sample weight of each record is a function of that record and of public facts, "
    "and max_sample_weight is public",
    "largest weight": "max_sample_weight is public (it was taken from sample_weight; declare "
    "max_sample_weight=)",
    "processes": "the processes that trained together are one trusted curator",
    "parts": "each record lies in one of the processes that trained together",
    "persons": "persons that no column name tells apart (persons= as an array) are the same in all "
    "fits that are added up",
    "held out": "the size of the held-out part is public",
    "trials": "the number of trials and their scores stay secret; the steps above are of one trial",
}
_WORDS = re.compile(r"[\w.'-]+( [\w.'-]+)*")  # a value that needs no quotes in a list
FROZEN = "frozen: {:,} numbers of the module (sha256 {:.16}) are public by declaration"
WEIGHTS_FROM_OTHERS = (
    "sample weights computed from other private records, or from predictions on them, as AdaBoost "
    "and Fairlearn's ExponentiatedGradient and GridSearch do: fit without them"
)
_WEIGHTS = (
    " Sample weights, over max_sample_weight, multiply clipped gradients; each must be a function "
    "of its own record and of public facts: epsilon does not cover weights computed from other "
    "records."
)
_OF_PERSONS = {  # what a report on persons says instead; "" for nothing
    SEVERAL_RECORDS: "",
    OTHER_FITS: "other fits on the same persons: their cost comes in addition",
    ASSUMPTIONS["n"]: "the number of persons n and the bound on the records of one are public, and "
    "each record names its person (texts are compared stripped and in Unicode's form NFKC; whole "
    "numbers and their texts are one; everything else is taken as it is); the number of records is "
    "public, too, where steps before the classifier depend on it",
    ASSUMPTIONS["weights"]: "the sample weight of each record is a function of the records of its "
    "person and of public facts, and max_sample_weight is public",
    WEIGHTS_FROM_OTHERS: WEIGHTS_FROM_OTHERS.replace(
        "other private records", "records of other persons"
    ),
    _WEIGHTS: _WEIGHTS.replace("its own record", "the records of its person").replace(
        "other records", "the records of others"
    ),
}
DIAGNOSTICS_PART = "diagnostics by group"  # of a fitted object, neither of them private
REFERENCE_PART = "the non-private reference model"
# rate of false alarms at which reports state the detection rate
FALSE_ALARMS = 0.01
# a choice of a fit, and the share of steps above which it counts as made
AT_LIMIT = "lower limit of the clipping threshold", 0.5
_SEEDED = " The noise was seeded: whoever knows the seed can remove it."


def are_names(columns: Iterable[str | None]) -> bool:
    """Return whether columns of persons have names: positions do not tell what they hold."""
    return all(column is not None and not column.isdecimal() for column in columns)


def read_in_words(read: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a sentence on values that were read from rows, by column; "" without any."""
    quoted = ((n, [v if _WORDS.fullmatch(v) else f"“{v}”" for v in values]) for n, values in read)
    text = "; ".join(f"{name}: {', '.join(values)}" for name, values in quoted)
    return text and f"These values were read from the rows and taken as public: {text}."


def in_words_of(texts: Iterable[str], protects: str) -> tuple[str, ...]:
    """Return texts on records in the words for ``protects``, without those that do not apply."""
    words: dict[str, str] = _OF_PERSONS if protects == "person" else {}
    return tuple(filter(None, (words.get(text, text) for text in texts)))


def rounded_up(value: float | Decimal, digits: int = 4) -> str:
    """Return a number in few digits, never less than it is, as a guarantee must not shrink."""
    exact = value if isinstance(value, Decimal) else repr(float(value))
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exact)
    return f"{float(rounded):.{digits}g}"


def percent(share: float) -> str:
    """Return a bound on a share in per cent, rounded up."""
    # 100 * 0.0738 is above 7.38
    hundredfold = Decimal(repr(float(share))).scaleb(2)
    return rounded_up(min(hundredfold, Decimal(100)), 3)


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyReport:
    """The privacy of one fit.

    Parameters
    ----------
    method, what : str
        Name of the method that ran, and the object of the guarantee, in the plural.
    epsilon, delta, accountant, adjacency
        The guarantee; epsilon is infinite if the fit is not private.
    noise_multiplier, sample_rate, steps, expected_batch_size
        Of the steps on the data, warm-up and empty batches included; the rate is the largest of a
        record, or of a person, see ``protects``.
    max_grad_norm : float or None
        Sensitivity of the gradient sum; None if it changed with released values, or does not exist.
    max_sample_weight : float or None
        Bound on the sample weights, which multiply clipped gradients relative to it.
    n_samples, max_records : int or None
        Number of records, or of persons; and the bound on the records of a person that take part.
    records_per_person : int or None
        Declared number of records that a person has at most, in a fit that protects records.
    is_private, seeded : bool
        Whether epsilon is finite, and whether a seed allows the noise to be reproduced.
    holds : tuple of str
        Parts of the fitted object that are not private: diagnostics, the reference model.
    stop, proof, features : str or None
        When training stopped, and which steps are therefore accounted for; why no record affects
        the gradient of another; and what computed the features from each record alone.
    group_epsilons : dict or None
        Epsilon of each group, if rates differ by group.
    assumptions, not_accounted : tuple of str
        Facts assumed to be public, and risks that epsilon does not cover.
    read_from_rows : tuple of (str, tuple of str)
        Columns whose values the fit read from the rows, as groups or classes, and these values.
    releases : tuple of NoisyRelease
        All that was released, in order; equal steps are one of them.
    selection_curve : tuple of float or None
        Renyi divergences of a private search at the orders of its accountant, in place of
        releases.
    choices : tuple of (str, float, float)
        What the fit decided by released numbers, the number that decided it, and from where on it
        is chosen: of a fine curve, standard deviations of its cells from a coarse curve; of a pair
        of columns, the share of the variance of a class that its cells explain beyond the columns;
        of a threshold, the largest standard error that rates may have over their own; of the lower
        limit of the clipping threshold, the share of steps that ended at it.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> X, y = [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5).fit(X, y)
    >>> report = clf.privacy_
    >>> report.epsilon <= 3.0, report.delta, report.releasable
    (True, 1e-05, True)
    >>> print(report.plain_statement)
    Noise limits what the fitted weights reveal about one record, ...
    >>> report.detection_rate(false_alarm_rate=0.01) < 0.1, report.mu < 1, report.dg_bound() < 0.6
    (True, True, True)
    """

    method: str
    what: str = "fitted weights"
    epsilon: float
    delta: float
    accountant: str
    noise_multiplier: float
    sample_rate: float
    steps: int
    expected_batch_size: float
    max_grad_norm: float | None = None
    max_sample_weight: float | None = None
    max_records: int | None = None
    is_private: bool
    seeded: bool
    n_samples: int | None = None
    records_per_person: int | None = None
    holds: tuple[str, ...] = ()
    adjacency: str = "zero_out"
    stop: str | None = None
    proof: str | None = None
    features: str | None = None
    group_epsilons: dict[Any, float] | None = None
    assumptions: tuple[str, ...] = ()
    not_accounted: tuple[str, ...] = NOT_ACCOUNTED
    read_from_rows: tuple[tuple[str, tuple[str, ...]], ...] = ()
    releases: tuple[NoisyRelease, ...] = ()
    selection_curve: tuple[float, ...] | None = None
    choices: tuple[tuple[str, float, float], ...] = ()

    @property
    def protects(self) -> str:
        """What the guarantee is for: a "record", or a "person" with all records."""
        return PROTECTS[self.adjacency]

    @property
    def releasable(self) -> bool:
        """Whether the fitted object is private, without non-private parts."""
        return self.is_private and not self.holds

    def epsilon_for(self, n_records: int) -> float:
        """Return the epsilon of a person with ``n_records`` records, from 1 to 1000, at ``delta``.

        It is ``epsilon`` if the fit sampled persons, and not known for a private search.
        """
        n_records = integer("n_records", n_records, high=MAX_RECORDS)
        if n_records == 1 or not self.is_private or self.protects == "person":
            return self.epsilon
        if self.epsilon > 0 and not self.releases:
            raise ValueError(
                f"n_records must be 1 for a report without releases, got {n_records}. Take the "
                "report of a fit, not that of a private search."
            )
        return compute_epsilon(self.releases, self.delta, self.accountant, n_records)

    @property
    def _trade_off(self) -> tradeoff.TradeOff:
        if self.is_private and (self.releases or self.epsilon == 0):
            return tradeoff.trade_off(self.releases)
        if self.selection_curve is not None and len(self.selection_curve) == len(ORDERS):
            curve = tuple(map(float, self.selection_curve))
            return tradeoff.trade_off_from_curve(curve, self.delta)
        return tradeoff.trade_off_from_epsilon(self.epsilon, self.delta)

    @property
    def mu(self) -> float:
        """The parameter of Gaussian differential privacy; infinite if the fit is not private.

        No attacker does better than one who tells N(0, 1) and N(mu, 1) apart, at false-alarm rates
        from ``mu_from`` on at which at least ``mu_from`` of the members are missed.
        """
        return self._trade_off.mu

    @property
    def mu_from(self) -> float:
        """The error rate from which on ``mu`` holds: 0, the least resolved in float64, or delta."""
        return self._trade_off.mu_from

    def false_negative_rate(self, false_alarm_rate: ArrayLike) -> np.ndarray:
        """Return a lower bound on the share of members missed at each rate of false alarms.

        It is the trade-off function of the fit, at one record, or one person, see ``protects``.
        """
        return self._trade_off.false_negative_rate(false_alarm_rate)

    def detection_rate(self, false_alarm_rate: float = FALSE_ALARMS) -> float:
        """Return an upper bound on the share of members found: 1 minus the false-negative rate."""
        return float(self._trade_off.true_positive_rate(false_alarm_rate))

    def dg_bound(self) -> float:
        r"""Return an upper bound on the expected distributional-generalisation gap of the fit.

        Returns
        -------
        float
            In [0, 1]; 1 says nothing, and is returned if the fit is not private.

        Notes
        -----
        For every score :math:`\phi` in [0, 1] of one record and the fitted model,

        .. math::
            \left| E_{S, z \in S}\, \phi(z, \theta(S)) - E_{S, z}\, \phi(z, \theta(S)) \right|
            \le \sup_{S, S'} TV(\theta(S), \theta(S'))

        (equation 1 and Theorem 2.5 of [kulynych2022]_), where the training records :math:`S` and
        the test record :math:`z` are drawn independently from one population, and :math:`S'` is
        :math:`S` with one record replaced by another.  The total variation on the right is bounded
        by the trade-off function of the releases, or, if these are not listed, by epsilon and
        delta.  The bound holds in each group, too (Proposition C.6).

        If ``protects`` is "person", persons are drawn independently, and the score is that of a
        person, such as the accuracy on the person's records.  If it is "record", the records must
        be independent: several records of one person are not.

        The gap of a single fit varies around the expected one, and may exceed the bound.

        References
        ----------
        .. [kulynych2022] B. Kulynych, Y.-Y. Yang, Y. Yu, J. Blasiok, P. Nakkiran, "What You See is
           What You Get: Principled Deep Learning via Distributional Generalization", NeurIPS 2022.
        """
        return self._trade_off.dg_bound

    @property
    def plain_statement(self) -> str:
        """The guarantee in sentences for those who decide about a release."""
        protected, members = PROTECTED[self.protects], MEMBERS[self.protects]
        if not self.is_private:
            return (
                f"The {self.what} are not differentially private: nothing limits what someone who "
                f"sees them can learn about {protected}. An attacker may find all of the {members} "
                f"without false alarms.{self._parts}"
            )
        alarms = percent(FALSE_ALARMS)
        guess = percent((1 + self._trade_off.total_variation) / 2)
        factor = rounded_up(math.exp(self.epsilon) if self.epsilon < 700 else math.inf, 3)
        return (
            f"Noise limits what the {self.what} reveal about {protected}, even to someone who "
            f"knows all other records. An attacker who accepts {alarms} % false alarms finds at "
            f"most {percent(self.detection_rate())} % of the {members}; guessing finds {alarms} %. "
            "A guess between two equally likely cases, used or not used, is right with a "
            f"probability of at most {guess} %, instead of 50 %. In terms of differential privacy, "
            f"{CHANGED[self.protects]} changes the probability of any outcome by a factor of at "
            f"most {factor} (e^{rounded_up(self.epsilon)}), except with a probability of about "
            f"delta = {rounded_up(self.delta, 3)}."
            f"{_SEEDED * self.seeded}{self._parts}"
        )

    @property
    def sampling(self) -> str:
        """How the batches were drawn, in one sentence."""
        entries, protects = self.releases, self.protects
        if not self.is_private or not self.steps:
            return "No guarantee depends on how batches were drawn."
        mixed = [e for e in entries if e.group_rates or e.strata]  # of several rates
        if self.sample_rate == 1 and not mixed:
            return f"All {protects}s took part in every step ({self.steps:,} in all)."
        every = sum(e.steps for e in entries if e.sample_rate == 1 and e not in mixed)
        trial = "" if entries else " of the costliest trial"
        reads = f"release{'s' * (every > 1)} read{'s' * (every == 1)} all {protects}s"
        more = f"; {every:,} more {reads}" if every else ""
        if any(e.strata for e in entries):
            more += f"; the higher its probability, the less effect a {protects} could have"
        return (
            f"Poisson sampling by this library: in each of {self.steps:,} steps{trial}, every "
            f"{protects} took part with a probability of {self._most}"
            f"{rounded_up(self.sample_rate)}, independently of all others{more}."
        )

    @property
    def statement(self) -> str:
        """The guarantee in one sentence, or a sentence that there is none."""
        if not self.is_private:
            none = "This fit is NOT differentially private: its epsilon is infinite."
            return none + self._parts
        n, weights = self.records_per_person or 1, self.max_sample_weight is not None
        delta = rounded_up(self.delta, 3)
        texts = [
            f"The {self.what} are ({rounded_up(self.epsilon)}, {delta})-differentially private "
            f"({self.accountant} accountant, {self.adjacency} adjacency), where "
            f"{ADJACENCY_IN_WORDS[self.adjacency]}.",
            self.max_records
            and " It protects all records of one person, of which at most "
            f"{self.max_records} take part in the training.",
            n > 1
            and f" For a person with at most {n} records, all of which are replaced, they are "
            f"({rounded_up(self.epsilon_for(n))}, {delta})-differentially private.",
            *in_words_of([_WEIGHTS] * weights, self.protects),
            self.stop and f" Training stopped {self.stop}.",
            self.proof and f" Gradients are {self.proof}.",
            self.features and f" Features are those of {self.features}.",
            self.values_read and f" {self.values_read}",
            self.seeded and _SEEDED,
            self._parts,
        ]
        return "".join(text for text in texts if text)

    @property
    def values_read(self) -> str:
        """The values that the fit read from the rows, in one sentence; "" if it read none."""
        return read_in_words(self.read_from_rows)

    @property
    def _parts(self) -> str:
        """Return a sentence on the parts that are not private, if there are any."""
        if not self.holds:
            return ""
        return (
            f" The fitted object also holds {' and '.join(self.holds)}, NOT private: do not "
            "release it as it is; release() and pickles leave them out."
        )

    def facts(self) -> dict[str, Any]:
        """Return statements, fields and releases as a dict for JSON; infinity is "inf"."""
        return {
            "summary": self.summary,
            "plain_statement": self.plain_statement,
            "statement": self.statement,
            "mu": _as_json(float(rounded_up(self.mu))),
            "mu_from": float(rounded_up(self.mu_from)),
            "detection_rate": {
                "false_alarm_rate": FALSE_ALARMS,
                "at_most": float(rounded_up(self.detection_rate())),
            },
            "sampling": self.sampling,
            **{name: _as_json(value) for name, value in vars(self).items() if name != "releases"},
            "releasable": self.releasable,
            "releases": [_as_json(vars(release)) for release in self.releases],
        }

    @property
    def summary(self) -> dict[str, str]:
        """The guarantee in numbers, as every page, card, form and shell prints them."""
        if not self.is_private:
            return {"epsilon": "infinite: NOT differentially private", "method": self._method}
        n, protects = self.records_per_person or 1, self.protects
        of_person = f"; {rounded_up(self.epsilon_for(n))} for {n} records of a person"
        noise = f"{self.noise_multiplier:.4g} times the largest effect of one {protects}"
        read = ", ".join(dict.fromkeys(name for name, _ in self.read_from_rows))
        return {
            "epsilon": f"{rounded_up(self.epsilon)} at delta {rounded_up(self.delta, 3)} "
            f"({self.accountant} accountant){of_person * (n > 1)}",
            "protected": f"{PROTECTED[protects]} ({self.adjacency}; "
            f"the number of {protects}s is public)",
            "attacker": "finds at most {} of the {}, at {} false alarms".format(*self._attack),
            "mu": rounded_up(self.mu),
            "method": self._method,
            "sampling": f"Poisson, rate {self._most}{rounded_up(self.sample_rate)}",
            "noise": noise + ", SEEDED: the seed removes it" * self.seeded,
            **({"chosen": "; ".join(chosen)} if (chosen := self._chosen) else {}),
            "assumed": f"{cards.count(len(self.assumptions), 'fact')} to be public"
            + f", and the values of {read}, read from the rows" * bool(read),
            "not covered": f"{cards.count(len(self.not_accounted), 'point')} to check",
        }

    @property
    def _chosen(self) -> list[str]:
        return [what for what, number, least in self.choices if number > least]

    @property
    def _attack(self) -> tuple[str, str, str]:
        """How many members an attacker finds at most, who they are, and the false alarms."""
        share, alarms = "100", "0"
        if self.is_private:
            share, alarms = percent(self.detection_rate()), percent(FALSE_ALARMS)
        return f"{share} %", MEMBERS[self.protects], f"{alarms} %"

    @property
    def _most(self) -> str:
        entries = self.releases
        # the trials of a search have no entries, and rates up to that of the costliest
        largest = not entries or any(e.group_rates or e.strata for e in entries)
        return "at most " if largest else ""

    @property
    def _method(self) -> str:
        return f"{self.method}, {self.steps:,} steps"

    def __repr__(self) -> str:
        """Return at most twelve lines; `details` has the rest."""
        private = "differentially private" if self.is_private else "NOT differentially private"
        parts = [f"NOT private: {part}" for part in self.holds]
        rows = [f"  {name:<11}  {text}" for name, text in self.summary.items()]
        return "\n".join([f"The {self.what} are {private}; see .details()", *parts, *rows])

    def _repr_html_(self) -> str:
        (share, members, alarms), n = self._attack, self.n_samples
        title = f"The {self.what} are {'' if self.is_private else 'NOT '}differentially private"
        tiles = cards.tiles(
            ("privacy budget ε", rounded_up(self.epsilon), f"at delta {rounded_up(self.delta, 3)}"),
            ("protected", PROTECTED[self.protects], f"of {n:,} {self.protects}s" if n else ""),
            ("an attacker finds at most", share, f"of the {members}, at {alarms} false alarms"),
        )
        return cards.card(title, tiles, self._table())

    def as_fold(self) -> str:
        """Return the summary and all other facts folded, for scikit-learn's boxes."""
        return cards.fold("Privacy", cards.card("", self._table()), "estimator-table")

    def _table(self) -> str:
        lists = {"statement": [self.statement]} | self._lists()
        rest = "".join(cards.fold(title, cards.items(texts)) for title, texts in lists.items())
        warnings = (cards.warning(f"NOT private: {part}") for part in self.holds)
        return "".join([*warnings, cards.table(self.summary.items()), cards.fold("details", rest)])

    def details(self) -> str:
        """Return statements, releases, assumptions, risks and all numbers as lines of text."""
        lines = [fill(self.plain_statement, 88), fill(self.statement, 88)]
        for title, texts in self._lists().items():
            lines += [f"{title}:"] * bool(texts) + [f"  - {text}" for text in texts]
        return "\n".join(lines)

    def _lists(self) -> dict[str, Sequence[str]]:
        """Return lists of texts by title; numbers are rounded, those of the guarantee up."""
        numbers = {k: _in_digits(k, v) for k, v in vars(self).items() if np.isscalar(v)}
        by_group = _by_text(self.group_epsilons or {}).items()
        numbers |= {f"epsilon[{group}]": rounded_up(epsilon) for group, epsilon in by_group}
        numbers |= {"mu": rounded_up(self.mu)}
        if self.n_samples is not None:
            numbers["n_samples"] += f" {self.protects}s"
        released = [
            f"{e.steps:,} x {e.what}, sampling rate {rounded_up(e.sample_rate)}, noise "
            + ", ".join(f"{noise:.4g}" for noise in e.noise_multipliers)
            for e in self.releases
        ]
        return {
            "assumed to be public": self.assumptions,
            "not covered": self.not_accounted if self.is_private else (),
            "released": released,
            "decided by released numbers": [
                f"{what}: {'chosen' if number > least else 'not chosen'}, {number:.3g} "
                f"(chosen from {least:.3g} on)"
                for what, number, least in self.choices
            ],
            "sampled": [self.sampling],
            "numbers": [f"{name}: {text}" for name, text in numbers.items()],
        }


def _in_digits(name: str, value: Any) -> str:
    """Return a field of a report as text, in few digits."""
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, float):
        is_of_guarantee = name in ("epsilon", "delta", "sample_rate")
        return rounded_up(value) if is_of_guarantee else f"{value:.4g}"
    return str(value)


def _as_json(value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, dict):
        return {k: _as_json(v) for k, v in _by_text(value).items()}
    return value


def _by_text(values: dict[Any, Any]) -> dict[str, Any]:
    """Return values by texts of their keys, in quotes where two would be one, as 1 and "1"."""
    names = list(map(str, values))
    names = names if len(set(names)) == len(names) else list(map(repr, values))
    return dict(zip(names, values.values(), strict=True))
