"""The tests are tested: known privacy bugs, put in one at a time, must each make a test fail.

    python tests/mutants/run.py [--only WORD] [--jobs 2]

Copies the package and the tests to a temporary folder, changes one line there, and runs the tests
that should notice; the same tests have to pass on an unchanged copy first. Prints a table; exits
with 1 if a mutant survives, or if a line to be changed is not there any more.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]

SPEND, WORK = (
    "        self.privacy_ = _fitting.spend(self, config.event(), str(config.sampling))\n",
    """        streams = _fitting.streams(self, X, targets)
        if isinstance(config, noise_aware.NoiseAwareConfig):
            q = noise_aware.fit(config, X, targets, streams, progress)
            if self.covariance == "diag":
                q = GaussianPosterior(q.mean, np.sqrt(np.diag(q.covariance)))
        else:
            q = dp_vi.fit(config, likelihood, X, targets, streams, progress)
""",
)

# bug, file, what is there, what the bug puts there, the tests that should notice
MUTANTS = [
    (
        "linear gradients are not clipped",
        "engine/clipping.py",
        "r *= (self.clip_norm / np.maximum(norms, self.clip_norm))[:, None]",
        "pass",
        "tests/engine/test_clipping.py",
    ),
    (
        "network gradients are not clipped",
        "engine/network.py",
        "return self.clip_norm / norms.clamp(min=self.clip_norm)",
        "return torch.ones_like(norms)",
        "tests/engine/test_network.py",
    ),
    (
        "clipping per parameter instead of jointly",
        "engine/network.py",
        "squares += by_name[name].squared_norms",
        "squares = by_name[name].squared_norms",
        "tests/engine/test_network.py",
    ),
    (
        "a norm without its root",
        "engine/network.py",
        "return Gradients(squares.sqrt(), weighted_sum)",
        "return Gradients(squares, weighted_sum)",
        "tests/engine/test_network.py",
    ),
    (
        "non-finite gradients pass",
        "engine/network.py",
        "if not math.isfinite(norms.sum()):",
        "if False:",
        "tests/engine/test_network.py",
    ),
    (
        "non-finite linear gradients pass",
        "engine/clipping.py",
        "if not np.isfinite(norms.sum()):",
        "if False:",
        "tests/engine/test_clipping.py",
    ),
    (
        "noise not times the clipping norm",
        "engine/loop.py",
        "scale = sigma and sigma * clipped_sum.norm_bound",
        "scale = sigma",
        "tests/laws tests/replay",
    ),
    (
        "noise added is not the noise declared",
        "engine/noise.py",
        "alpha=call.scale",
        "alpha=call.scale / 1.5",
        "tests/laws tests/estimators/test_sgd.py",
    ),
    (
        "sensitivity without the factor of replacement",
        "relations.py",
        "return 2.0 if check",
        "return 1.0 if check",
        "tests/privacy tests/engine/test_clipping.py",
    ),
    (
        "each step starts the noise again",
        "engine/loop.py",
        'coins, noise = streams("sampling"), streams("noise")',
        'coins, noise = streams("sampling"), type("S", (), {"normal": staticmethod(lambda shape: '
        '__import__("numpy").random.default_rng(0).standard_normal(shape)), "scratch_uniform": '
        'staticmethod(lambda size: __import__("numpy").random.default_rng(0).random(size))})()',
        "tests/laws",
    ),
    (
        "a batch of fixed size accounted as Poisson",
        "engine/sampling.py",
        "size = int(stream.generator.binomial(n_rows, self.rate))",
        "size = round(n_rows * self.rate)",
        "tests/engine/test_sampling.py",
    ),
    (
        "an empty batch is skipped",
        "engine/loop.py",
        "        theta, clipped_sum = query(state), plan.clipped_sum_of(step)\n",
        "        if not isinstance(selection, slice) and len(selection) == 0:\n"
        "            continue\n"
        "        theta, clipped_sum = query(state), plan.clipped_sum_of(step)\n",
        "tests/replay",
    ),
    (
        "the realised batch as divisor",
        "algorithms/training.py",
        "    algorithm = config.algorithm()\n    state = algorithm.init(model.start)\n    steps",
        "    object.__setattr__(config, 'n_rows', len(X))\n"
        "    algorithm = config.algorithm()\n    state = algorithm.init(model.start)\n    steps",
        "tests/replay tests/estimators/test_sgd.py",
    ),
    (
        "one step accounted instead of T",
        "privacy/events.py",
        "PoissonSampledDpEvent(q, step), n_steps)",
        "PoissonSampledDpEvent(q, step), 1)",
        "tests/privacy/test_accounting.py tests/replay",
    ),
    (
        "the event knows another rate",
        "algorithms/dp_sgd.py",
        "return dp_sgd_event(self.noise_multiplier, self.sampling_rate, self.n_steps)",
        "return dp_sgd_event(self.noise_multiplier, self.sampling_rate / 2, self.n_steps)",
        "tests/replay",
    ),
    (
        "the event of variational inference knows another rate",
        "algorithms/dp_vi.py",
        "return dp_sgd_event(self.noise_multiplier, self.sampling_rate, self.n_steps)",
        "return dp_sgd_event(self.noise_multiplier, self.sampling_rate / 2, self.n_steps)",
        "tests/replay",
    ),
    (
        "rows are not clipped",
        "engine/rows.py",
        "features *= np.minimum(1.0, norm / np.maximum(norms, norm))[:, None]",
        "pass",
        "tests/engine tests/estimators/test_variational.py",
    ),
    (
        "the intercept is not in the bound of a row",
        "engine/rows.py",
        "return float(np.hypot(data_norm, 1.0)) if fit_intercept else float(data_norm)",
        "return float(data_norm)",
        "tests/engine tests/estimators/test_variational.py",
    ),
    (
        "the key of a seed knows no data",
        "_random.py",
        'parts.append(np.ascontiguousarray(array).data.cast("B"))',
        "pass",
        "tests/test_random.py tests/laws",
    ),
    (
        "a seeded fit is called valid",
        "privacy/report.py",
        "valid=math.isfinite(epsilon) and not seeded and used != NOT_A_BOUND",
        "valid=math.isfinite(epsilon)",
        "tests/privacy/test_report.py tests/estimators",
    ),
    (
        "charged after the work",
        "estimators/_variational.py",
        SPEND + WORK,
        WORK + SPEND,
        "tests/bugs tests/privacy/test_crashes.py",
    ),
    (
        "an entry that is never written",
        "privacy/ledger.py",
        "        for append in appends:\n            append(entry)",
        "        pass",
        "tests/privacy/test_ledger.py tests/privacy/test_crashes.py",
    ),
    (
        "a ceiling that lets everything pass",
        "privacy/ledger.py",
        "if total > self.epsilon:",
        "if total > 2 * self.epsilon:",
        "tests/privacy/test_ledger.py",
    ),
    (
        "a fork repeats its parent's noise",
        "_random.py",
        "if os.getpid() != self._pid:  # a child",
        "if False:  # a child",
        "tests/test_random.py",
    ),
    (
        "epsilon rounded down",
        "privacy/gdp.py",
        "epsilon = max(epsilon * (1 + step), math.nextafter(epsilon, math.inf))",
        "break",
        "tests/privacy/test_gdp.py",
    ),
    (
        "calibration misses the promise",
        "privacy/calibration.py",
        "if -tolerance <= e <= slack or",
        "if -tolerance <= e <= 0.01 or",
        "tests/privacy tests/estimators/test_sgd.py",
    ),
    (
        "partial fits state the last one alone",
        "estimators/_network.py",
        "before=self.privacy_ if goes_on else None,",
        "before=None,",
        "tests/estimators/test_sgd.py",
    ),
    (
        "schedules are bucketed upwards",
        "privacy/bounds.py",
        "float(sigmas[inside].min())",
        "float(sigmas[inside].max())",
        "tests/privacy/test_differential.py",
    ),
    (
        "noise multiplier squared",
        "privacy/bounds.py",
        "mus.append(math.sqrt(term.count) * factor / term.noise_multiplier)",
        "mus.append(math.sqrt(term.count) * factor / term.noise_multiplier**2)",
        "tests/privacy",
    ),
    (
        "Gram norms in single precision",
        "engine/per_sample.py",
        "a_wide, b_wide = a.double(), b.double()",
        "a_wide, b_wide = a, b",
        "tests/engine/test_network.py",
    ),
    (
        "a padding row has a gradient",
        "engine/per_sample.py",
        "b = b.masked_fill((index == module.padding_idx)[..., None], 0.0)",
        "pass",
        "tests/engine/test_network.py",
    ),
    (
        "the noise of DP-SGLD is that of its first step throughout",
        "engine/loop.py",
        "sigma = sigma[step]",
        "sigma = sigma[0]",
        "tests/replay tests/estimators/test_sgld.py",
    ),
    (
        "DP-SGLD charges its first step only",
        "algorithms/dp_sgld.py",
        "return dp_sgd_event(self.noise_multipliers, self.sampling_rate)",
        "return dp_sgd_event(self.noise_multipliers[:1], self.sampling_rate)",
        "tests/replay",
    ),
    (
        "twice the temperature that DP-SGLD states",
        "algorithms/dp_sgld.py",
        "math.sqrt(2 * T / (N * eta))",
        "math.sqrt(4 * T / (N * eta))",
        "tests/estimators/test_sgld.py",
    ),
    (
        "noise before clipping is added after it",
        "engine/network.py",
        "return weighted_sum(-self._factors(norms))",
        "return weighted_sum(-self._factors(norms)) + self.prenoise_scale",
        "tests/engine/test_network.py tests/estimators/test_sgld.py",
    ),
    (
        "temperature scaling states its own cost alone",
        "calibration.py",
        "both = fitted.privacy_ + own",
        "both = own",
        "tests/test_calibration.py",
    ),
    (
        "a Langevin chain at half the noise",
        "algorithms/langevin.py",
        "h * drift + math.sqrt(2 * h) * noise.normal(shape)",
        "h * drift + math.sqrt(h / 2) * noise.normal(shape)",
        "tests/algorithms/test_langevin.py tests/estimators/test_ops.py",
    ),
    (
        "a batch's gradient counts l times, its sensitivity once",
        "algorithms/langevin.py",
        "sensitivity=n_batches * shift,",
        "sensitivity=shift,",
        "tests/algorithms/test_langevin.py",
    ),
    (
        "a step that need not contract passes",
        "algorithms/langevin.py",
        "if not positive(step_size=h) <= longest:",
        "if False:",
        "tests/algorithms/test_langevin.py",
    ),
    (
        "several chains for the price of one",
        "algorithms/langevin.py",
        "return math.sqrt(self.n_chains) * self.likelihood_power * one",
        "return self.likelihood_power * one",
        "tests/algorithms/test_langevin.py",
    ),
    (
        "all states of the chain leave",
        "algorithms/langevin.py",
        "return deque(progress(states(config, X, targets, streams)), maxlen=1).pop()",
        "return np.concatenate(list(states(config, X, targets, streams)))",
        "tests/replay/test_ops.py tests/estimators/test_ops.py",
    ),
    (
        "a posterior's sensitivity forgets that a record may be replaced",
        "algorithms/tempered.py",
        "return sensitivity_factor(self.neighboring_relation) * bound",
        "return bound",
        "tests/algorithms/test_langevin.py",
    ),
    (
        "a posterior's range forgets that a record may be replaced",
        "algorithms/tempered.py",
        "return sensitivity_factor(self.neighboring_relation) * one",
        "return one",
        "tests/algorithms/test_ops.py",
    ),
    (
        "every proposal is accepted",
        "algorithms/exact_draws.py",
        "θ[inside[np.log1p(-coins[inside]) <= -excess]]",
        "θ[inside]",
        "tests/algorithms/test_ops.py",
    ),
    (
        "the domain's end is forgotten",
        "algorithms/exact_draws.py",
        "np.flatnonzero(squares <= D * D)",
        "np.flatnonzero(squares < np.inf)",
        "tests/algorithms/test_ops.py",
    ),
    (
        "the proximal sampler stops after a round",
        "algorithms/exact_draws.py",
        "for _ in range(n_rounds(posterior, g, distance)):",
        "for _ in range(1):",
        "tests/algorithms/test_ops.py",
    ),
    (
        "the proximal sampler's noise costs nothing",
        "algorithms/ops.py",
        "return self.likelihood_power * self.posterior.range / _share(self.sampler)",
        "return self.likelihood_power * self.posterior.range",
        "tests/algorithms/test_ops.py",
    ),
    (
        "the proximal sampler's noise tells the number of rows",
        "algorithms/ops.py",
        "config.distance / config.epsilon_of_noise",
        "len(X) * config.distance / config.epsilon_of_noise",
        "tests/replay/test_ops.py",
    ),
    (
        "the sharper bound is too sharp",
        "algorithms/exact_draws.py",
        "max(M * potential.longest_row(metric), 1e-3)",
        "max(0.01 * potential.longest_row(metric), 1e-3)",
        "tests/algorithms/test_ops.py",
    ),
    (
        "softmax has the range of two classes",
        "models/likelihoods.py",
        "return float(most - np.logaddexp(0.0, others - gap))",
        "return math.sqrt(2.0) * reach",
        "tests/models/test_likelihoods.py",
    ),
    (
        "more posterior samples than were paid for",
        "estimators/_posterior_sampler.py",
        "if wanted > paid:",
        "if False:",
        "tests/estimators/test_ops.py",
    ),
    (
        "second moments are not bounded record by record",
        "engine/gram.py",
        "w = np.minimum(w, self.bound / np.maximum(norms**2, 1e-300))",
        "pass",
        "tests/engine/test_gram.py",
    ),
    (
        "second moments count entries beside the diagonal once",
        "engine/gram.py",
        "return matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))",
        "return matrix[rows, columns]",
        "tests/engine/test_gram.py",
    ),
    (
        "a weight follows the record's own residual",
        "engine/clipping.py",
        "norms = np.maximum(norms, self.largest_residual(logits))",
        "pass",
        "tests/algorithms/test_noise_aware.py",
    ),
    (
        "the noise-aware event leaves the curvature out",
        "algorithms/noise_aware.py",
        "return dp_sgd_event(self.noise_multipliers, 1.0)",
        "return dp_sgd_event(self.noise_multiplier, 1.0, self.n_steps)",
        "tests/replay/test_variational.py tests/estimators/test_variational.py",
    ),
    (
        "second moments are cut at a bound that is not the declared one",
        "algorithms/noise_aware.py",
        "sums[0] = GramSum(R**2, trace_only=self.curvature == TRACE)",
        "sums[0] = GramSum(R, trace_only=self.curvature == TRACE)",
        "tests/algorithms/test_noise_aware.py tests/estimators/test_variational.py",
    ),
    (
        "a sequence of sums is all declared as the first",
        "engine/loop.py",
        "return clipped_sum[step] if isinstance(clipped_sum, Sequence) else clipped_sum",
        "return clipped_sum[0] if isinstance(clipped_sum, Sequence) else clipped_sum",
        "tests/replay/test_variational.py tests/algorithms/test_noise_aware.py",
    ),
    (
        "the posterior forgets the DP noise",
        "algorithms/noisy_statistic.py",
        "values = np.maximum(V, 0.0) + self.variance",
        "values = np.maximum(V, 0.0) + 1e-6 * self.variance",
        "tests/algorithms/test_noise_aware.py",
    ),
    (
        "residual sums of a regression have too small a bound",
        "engine/residual_sum.py",
        "return math.hypot(1.0, self.scale_weight / 2, self.trace_weight / 2)",
        "return 0.5",
        "tests/algorithms/test_noise_aware_regression.py",
    ),
    (
        "gradients of a user's model are not clipped",
        "algorithms/dp_vi_model.py",
        "gradients = gradients * (self.clip_norm / norms.clamp(min=self.clip_norm))[:, None]",
        "pass",
        "tests/estimators/test_variational_model.py tests/replay/test_variational_model.py",
    ),
    (
        "a scaler forgets the squares in a row's share",
        "preprocessing/standard_scaler.py",
        "return math.sqrt(1.5 * n_features)",
        "return math.sqrt(1.25 * n_features)",
        "tests/preprocessing/test_standard_scaler.py",
    ),
    (
        "half of the quantiles are accounted",
        "preprocessing/quantile_scaler.py",
        "epsilon=self._range(2 * n_features),",
        "epsilon=self._range(n_features),",
        "tests/preprocessing/test_quantile_scaler.py",
    ),
    (
        "rows of a private PCA are not clipped",
        "preprocessing/_releases.py",
        "return np.where(largest > norm / lengths, directions * (norm / lengths), rows)",
        "return rows",
        "tests/preprocessing",
    ),
    (
        "fits in worker processes are not charged",
        "privacy/ledger.py",
        "ledgers = list(dict.fromkeys([*_open, *above]))",
        "ledgers = list(_open)",
        "tests/model_selection/test_counting.py",
    ),
    (
        "shares of a budget add up in epsilon",
        "model_selection/budgets.py",
        "gdp_to_epsilon(math.sqrt(w) * mu, delta)",
        "gdp_to_epsilon(math.sqrt(w) * mu, delta) * 1.1",
        "tests/model_selection/test_budgets.py",
    ),
    (
        "a part that is fitted many times is planned once",
        "model_selection/budgets.py",
        "if isinstance(around, ONCE) or any(around is part for part in found.values()):",
        "if True:",
        "tests/model_selection/test_budgets.py",
    ),
    (
        "a standard scaler passes for public",
        "privacy/workflow.py",
        "valid=report.valid and not unaccounted,",
        "valid=report.valid,",
        "tests/privacy/test_workflow.py",
    ),
    (
        "a private score has too small a share",
        "model_selection/_scores.py",
        "RECORD_NORM = 0.5",
        "RECORD_NORM = 0.25",
        "tests/model_selection/test_search.py",
    ),
    (
        "a search states the price of one trial",
        "model_selection/_candidates.py",
        "return RepeatAndSelectDpEvent(base, law.mean, law.shape)",
        "return base",
        "tests/model_selection/test_search.py",
    ),
    (
        "a search takes candidates that cost more",
        "model_selection/_candidates.py",
        "return _dominated(ComposedDpEvent([event, *score]), self.base)",
        "return True",
        "tests/model_selection/test_search.py",
    ),
    (
        "a fixed number of trials",
        "model_selection/trials.py",
        "positive = drawn[drawn > 0]",
        "positive = np.full(len(drawn), round(self.mean))",
        "tests/model_selection/test_trials.py",
    ),
    (
        "the winner states the price of its own trial",
        "model_selection/search.py",
        "_restate(winner, self.privacy_)",
        "pass",
        "tests/model_selection/test_search.py",
    ),
    (
        "a selection is accounted with its inner event doubled wrongly",
        "privacy/bounds.py",
        "one_run = [_rdp_event(t, relation) for t in _fewer_levels(inner, relation)]",
        'one_run = [_rdp_event(t, "zero_out") for t in inner]',
        "tests/privacy/test_selection.py tests/model_selection/test_search.py",
    ),
    (
        "integers are rounded and not held to their bound",
        "engine/grid.py",
        "    if not inside.all():",
        "    if False:",
        "tests/engine/test_grid.py",
    ),
    (
        "a grid twice as fine as the noise",
        "engine/grid.py",
        "return BOUND_BITS - 1 + math.frexp(sigma)[1]",
        "return BOUND_BITS - 2 + math.frexp(sigma)[1]",
        "tests/engine/test_grid.py",
    ),
    (
        "room for rounding is forgotten",
        "engine/grid.py",
        "return self.inner.record_bound / (self.bound - ROOM)",
        "return self.inner.record_bound / self.bound",
        "tests/engine/test_grid.py",
    ),
    (
        "zero comes twice as often",
        "engine/discrete_gaussian.py",
        "kept = ~(negative & (u == 0) & (v == 0))",
        "kept = np.ones(len(u), dtype=bool)",
        "tests/engine/test_discrete_gaussian.py",
    ),
    (
        "discrete noise with exponential tails",
        "engine/discrete_gaussian.py",
        "kept &= _all_pass(half, w * w, random)",
        "kept &= _all_pass(half, w, random)",
        "tests/engine/test_discrete_gaussian.py",
    ),
    (
        "the distance to rounded Gaussian noise counts once for all coordinates",
        "privacy/discrete.py",
        "return self.count * self.dimension * rounding_distance(self.lattice_scale)",
        "return self.count * rounding_distance(self.lattice_scale)",
        "tests/privacy/test_discrete.py",
    ),
    (
        "a limit that holds half as often as it says",
        "audit/bounds.py",
        "low = 1.0 - float(upper_limit(n - count, n, level / 2))",
        "low = 1.0 - float(upper_limit(n - count, n, level))",
        "tests/audit/test_bounds.py",
    ),
]

COMMAND = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
LIMIT = 900  # seconds; a mutant that hangs has been noticed by nobody
COPIED = ("skdp", "tests", "docs", "README.md", "pyproject.toml", "constraints.txt")


def checked(tests, file=None, old="", new=""):
    """Run tests on a copy, with a line changed; return the first that fails, or what happened."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                built = shutil.ignore_patterns("_build", "auto_examples", "__pycache__")
                shutil.copytree(source, copy / name, ignore=built)
            else:
                shutil.copy(source, copy / name)
        if file is not None:
            target = copy / "skdp" / file
            text = target.read_text()
            if text.count(old) != 1:
                return f"SURVIVED (the line is there {text.count(old)} times)"
            target.write_text(text.replace(old, new))
        home = {"PYTHONPATH": folder, "HOME": folder, "PATH": "/usr/bin:/bin"}
        try:
            run = subprocess.run(
                [*COMMAND, *tests.split()],
                cwd=copy,
                env=home | {"OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"SURVIVED ({LIMIT} s)"
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else f"SURVIVED ({run.returncode})"


def main():
    """Run every mutant, after the same tests on the code as it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a word in the name of the bug")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", help="file for the verdicts")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant[0]]
    wanted = sorted({path for *_, tests in mutants for path in tests.split()})
    verdicts = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for path, verdict in zip(wanted, pool.map(checked, wanted), strict=True):
            if not verdict.endswith("(0)"):
                raise SystemExit(f"{path} fails without any mutant: {verdict}")
        runs = [pool.submit(checked, tests, *change) for _, *change, tests in mutants]
        for (bug, *_), run in zip(mutants, runs, strict=True):
            verdicts[bug] = run.result()
            print(f"{bug:<72} {verdicts[bug]}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(verdicts, ensure_ascii=False))
    raise SystemExit(any(verdict.startswith("SURVIVED") for verdict in verdicts.values()))


if __name__ == "__main__":
    main()
