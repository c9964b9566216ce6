"""The sentences in which audits report."""


def sure(confidence: float) -> str:
    """Return a confidence in words that never round it to certainty.

    Examples
    --------
    >>> sure(0.95), sure(1 - 1e-9)
    ('0.95', '1 - 1e-09')
    """
    return f"{confidence:g}" if confidence <= 0.999 else f"1 - {1 - confidence:.0e}"


def said(audit, what, evidence, at_best, more) -> str:
    """Return what an audit found: a lower bound, or that it shows nothing, and why.

    Parameters
    ----------
    audit : FitAudit or StepAudit
        Holds both epsilons, ``delta`` and ``confidence``.
    what : str
        What spends.
    evidence : str
        What the bound rests on.
    at_best : float
        The bound if the attack had never been wrong.
    more : str
        What there should be more of, for a higher one.
    """
    where = f"at delta={audit.delta:g} ({evidence}, confidence {sure(audit.confidence)})"
    claim = f"its claim of {audit.epsilon_claimed:.3g}"
    if audit.epsilon_lower > 0:
        verdict = "not above" if audit.passed else "ABOVE"
        spent = f"{audit.epsilon_lower:.3g}"
        return f"{audit.method}: {what} spends epsilon {spent} or more {where}, {verdict} {claim}."
    within = "" if at_best > audit.epsilon_claimed else f": too little to exceed {claim}"
    return (
        f"{audit.method}: shows nothing (lower bound 0) {where}. An attack that is never wrong "
        f"would have shown {at_best:.3g}{within}. More {more} show more."
    )
