"""`benchmarks/gpu.py` on the CPU: what it finds right is right, and what is wrong it sees."""

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from skdp.engine import tensor_noise
from skdp.engine.modules.network_sum import NetworkClippedSum

FOLDER = Path(__file__).parents[2] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def gpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)  # of the modules that it shares with others
        spec = importlib.util.spec_from_file_location("gpu", FOLDER / "gpu.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_sums_that_are_off_by_a_thousandth_are_wrong(gpu, monkeypatch):
    species = gpu.kinds()["perceptron"]
    right = gpu.errors(species, CPU)
    assert right["double"] <= gpu.zoo.TOLERANCE
    assert right["single"] <= gpu.SINGLE
    piece = NetworkClippedSum.piece

    def off(clipped_sum, *given):
        found = piece(clipped_sum, *given)
        return found if found.dtype == torch.float64 else 1.001 * found

    monkeypatch.setattr(NetworkClippedSum, "piece", off)
    assert gpu.errors(species, CPU)["single"] > gpu.SINGLE


def test_every_kind_of_the_zoo_takes_part_and_is_made_anew(gpu):
    kinds = gpu.kinds()
    assert set(kinds) == {*gpu.zoo.FAMILIES, *gpu.zoo.BODIES, *gpu.zoo.BROKE}
    first, second = (kinds["layer used twice"].make() for _ in range(2))
    assert first.a is not second.a


def test_laws_hold_and_others_are_refuted(gpu, monkeypatch):
    assert gpu.laws(CPU, True, math.inf)["right"]
    normals = tensor_noise._normals
    monkeypatch.setattr(tensor_noise, "_normals", lambda *given: 1.02 * normals(*given))
    assert not gpu.laws(CPU, True, math.inf)["right"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mean", lambda z: z + 0.02),
        ("deviation", lambda z: 1.02 * z),
        ("Kolmogorov–Smirnov", lambda z: np.sign(z)),
        ("beyond 3", lambda z: z.clip(-3.0, 3.0)),
        ("steps", lambda z: np.repeat(z[::2], 2, axis=0)),
    ],
)
def test_each_figure_of_noise_refutes_what_is_wrong(gpu, name, wrong):
    z = np.random.default_rng(0).standard_normal((16, 2**14))
    assert min(gpu.noise_law(z).values()) > gpu.RARE
    assert gpu.noise_law(wrong(z))[name] < gpu.RARE


def shuffled(rng, n_steps, n):
    """Batches of a quarter each, which a shuffled epoch of four steps deals out."""
    orders = rng.permuted(np.tile(np.arange(n), (n_steps // 4, 1)), axis=1)
    of = (4 * orders // n)[:, None] == np.arange(4)[:, None]
    return of.reshape(n_steps, n).astype(float)


WRONG = {
    "rate": lambda rng, shape: rng.random(shape) < 0.27,
    "sizes": lambda rng, shape: shuffled(rng, *shape),
    "records": lambda rng, shape: shuffled(rng, *shape),
    "Kolmogorov–Smirnov": lambda rng, shape: rng.random(shape) < np.linspace(0.2, 0.3, shape[1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_figure_of_batches_refutes_what_is_wrong(gpu, name):
    rng, shape = np.random.default_rng(0), (200, 512)
    assert min(gpu.batch_law((rng.random(shape) < 0.25) * 1.0, 0.25).values()) > gpu.RARE
    assert gpu.batch_law(WRONG[name](rng, shape) * 1.0, 0.25)[name] < gpu.RARE


@pytest.fixture
def small(gpu, monkeypatch):
    """Tiny networks and few steps."""
    network = lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))  # noqa: E731
    models = {name: ((6,), 3, network, {}) for name in gpu.MODELS.values()}
    monkeypatch.setattr(gpu.step_time, "MODELS", models)
    monkeypatch.setattr(gpu.step_time, "N_ROWS", 256)


def test_each_method_is_timed_and_profiled(gpu, small, monkeypatch):
    monkeypatch.setattr(gpu, "TIMED", 4)
    methods = [m for m in gpu.METHODS if not m.startswith("Opacus")]
    found, failed = gpu.cell(gpu.MODELS["CNN"], 32, CPU, methods, 2, math.inf)
    assert (set(found), failed) == (set(methods), {})
    for method, of in found.items():
        assert [len(ms) for ms in of["ms"]] == [4] * 2
        assert min(min(of["ms"])) > 0.0
        assert ("profile" in of) == method.startswith("skdp")


def test_goals_compare_with_plain_and_with_the_faster_of_opacus(gpu):
    def row(method, ms):
        return {"model": "CNN", "batch": 512, "method": method, "median_ms": ms}

    of_others = [row("plain", 1.0), row("Opacus hooks", 2.0), row("Opacus ghost", 1.25)]
    for ms, met in ((1.2, [True, True]), (1.28, [True, False]), (1.4, [False, False])):
        found = gpu.goals([*of_others, row("skdp DP-SGD", ms)])
        assert [goal["met"] for goal in found] == met


def test_a_part_that_fails_does_not_end_the_others(gpu, monkeypatch, tmp_path):
    def fails(*given):
        raise RuntimeError("no memory")

    monkeypatch.setattr(gpu, "PARTS", {"sums": fails, "laws": gpu.laws})
    file = tmp_path / "found.json"
    given = ["--device", "cpu", "--quick", "--parts", "sums", "laws", "--json", str(file)]
    assert gpu.main(given) == 1
    found = json.loads(file.read_text())
    assert "no memory" in found["sums"]["failed"]
    assert found["laws"]["right"]
    assert found["about"]["torch"] == torch.__version__


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_it_needs(gpu, capsys):
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "built for CUDA" in capsys.readouterr().err
