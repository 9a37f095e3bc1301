"""What skdp warns of: privacy statements that hold less than they seem to, and useless fits."""


class PrivacyWarning(UserWarning):
    """A privacy statement is conditional, or void; the message says on what.

    Examples
    --------
    >>> import warnings
    >>> from skdp import DPVariationalLogisticRegression, PrivacyWarning
    >>> X, y = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
    >>> seeded = DPVariationalLogisticRegression(classes=[0, 1], n_samples=4, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", PrivacyWarning)
    ...     seeded.fit(X, y).privacy_.valid
    False
    >>> {warning.category.__name__ for warning in caught}
    {'PrivacyWarning'}
    """


class FitWarning(UserWarning):
    """A fit is private as stated, and its result is not to be relied on; the message says why.

    It is a function of released values and of public facts, and so costs no privacy. The messages
    of a fit stay in its ``diagnostics_``: a warning in a worker process may not be seen.

    Examples
    --------
    >>> import warnings
    >>> from skdp import DPVariationalLogisticRegression, FitWarning
    >>> X, y = [[-40.0], [-60.0], [30.0], [70.0]] * 500, [0, 0, 1, 1] * 500
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FitWarning)
    ...     model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=2000).fit(X, y)
    >>> [warning.category.__name__ for warning in caught], len(model.diagnostics_)
    (['FitWarning'], 1)
    """
