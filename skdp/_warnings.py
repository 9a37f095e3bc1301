"""The warning category of privacy statements that hold less than they seem to."""


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
