"""Paragraphs that the documentation of several estimators of networks shares.

`CLASSES` or `TARGET_BOUNDS`, which only some have, stand before `END`.
"""

BUDGET = """    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``INSTEAD``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
"""

NETWORK = """    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, callable or None, default=None
        A network instead of the perceptron, or a function of (n_features, n_outputs) that makes
        one. It gets rows (n, n_features) of floating-point numbers, also of integer X (start with
        ``nn.Unflatten`` for images, with ``x.long()`` for an `Embedding`), and returns logits
        (n, n_classes) without softmax, or predictions (n, n_targets). Its initial weights must not
        have been learned from the private rows. A module is copied, and each `fit` starts from its
        weights; parameters with ``requires_grad=False`` stay as they are. A record on which it
        fails contributes nothing.

        It must treat each record by itself, in training too, and keep no state: the guarantee is
        conditional on that, as ``privacy_.assumptions`` says. A module that is seen to mix is
        refused before anything is spent: in a trial on batches of 1 to 33 synthetic records of
        scale .1 to 10, in training and in evaluation. The trial cannot see a branch on
        other values, on other batch sizes, on the weights, on a rare random event, on the time
        or on global state.
"""

STEPS = """    max_iter : int or "auto", default="auto"
        Number of noisy steps.
    epochs : float or None, default=None
        Instead of ``max_iter``: expected number of times that a row takes part, > 0.
    batch_size : int or "auto", default="auto"
        Expected number of rows in a Poisson batch.
    sampling_rate : float or None, default=None
        Poisson sampling rate in (0, 1], instead of ``batch_size``; 1 is the full batch.
"""

CLIPPING = """    clip_norm : float or "auto", default="auto"
        Norm > 0 to which each record's gradient, over all parameters jointly, is clipped; 1 if
        ``"auto"``, and none without privacy.
    clipping : {"flat", "automatic"}, default="flat"
        Factor of a record's gradient g: min(1, C/‖g‖), or C/(‖g‖ + .01) (Bu et al. 2023).
"""

RUN = """    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    physical_batch_size : int or None, default=None
        Records that are worked on at once, for memory; None is 1024. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
"""

CLASSES = """    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
"""

TARGET_BOUNDS = """    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
"""

SECURE = """    secure : bool, default=False
        Round each record's share to a grid, sum integers exactly and add exact discrete Gaussian
        noise: the guarantee then no longer treats floating-point sums and noise as exact. Full
        batches only; slower, and as accurate. See docs/privacy.md, section 8.
"""

END = """    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they are told of steps and see no data.
"""

FITTED = """    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    privacy_ : PrivacyReport
        The privacy statement.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.
"""

FITTED_CLASSES = """    classes_ : ndarray of shape (n_classes,)
        Class labels.
"""
