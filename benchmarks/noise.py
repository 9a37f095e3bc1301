"""Throughput of normal numbers: the library's, numpy's and torch's, in one process.

    python benchmarks/noise.py [--sizes 4096 79510 1000000] [--repetitions 50] [--json FILE]

Prints, per number of normals: the median of the time of a call in ms, its quartiles, and the median
of its ratio to torch.randn of the same round. Methods take turns in random order. With ``--cold``
64 MB are written before each call, as a step on a large batch does: what the call uses is then in
no cache.

- skdp: AES-128 of OpenSSL, radius of 63 bits and angle of 64, Box-Muller in float64.
- bits: the random bits of that alone.
- ziggurat on AES: numpy's `Generator.standard_normal` on AES-128 of randomgen, which the library
  uses for fewer than 8192 numbers, and before 0.2.0 for fewer than 16384.
- numpy, numpy single: PCG64, which can be predicted, in float64 and float32.
- torch, torch single: `torch.randn`, the Mersenne Twister, which can be predicted too.
"""

import argparse
import json
import time

import numpy as np
import torch

import skdp
from skdp.fitting import streams

JUNK = np.zeros(2**23)


def bits(stream, size):
    """Draw what `size` normals are made of."""
    out = np.empty(streams._PAIRS, dtype=np.uint64)
    for start in range(0, size, len(out)):
        stream.words(out[: min(len(out), size - start)])


def methods(size):
    """What makes so many normals."""
    stream, generator = streams.Streams()("noise"), np.random.default_rng()
    return {
        "skdp": lambda: stream.scratch_normal(size),
        "bits": lambda: bits(stream, size),
        "ziggurat on AES": lambda: stream.generator.standard_normal(size),
        "numpy": lambda: generator.standard_normal(size),
        "numpy single": lambda: generator.standard_normal(size, dtype=np.float32),
        "torch": lambda: torch.randn(size, dtype=torch.float64),
        "torch single": lambda: torch.randn(size),
    }


def measure(size, repetitions, cold):
    """Return {method: seconds of its calls}."""
    calls, rng = methods(size), np.random.default_rng(0)
    times = {name: [] for name in calls}
    for round_ in range(-2, repetitions):
        for name in rng.permutation(list(calls)):
            if cold:
                JUNK.__iadd__(1.0)
            start = time.perf_counter()
            calls[name]()
            if round_ >= 0:
                times[name].append(time.perf_counter() - start)
    return times


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[4096, 79_510, 1_000_000])
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write all times here")
    arguments = parser.parse_args()
    print(f"skdp {skdp.__version__}, numpy {np.__version__}, torch {torch.__version__}, ", end="")
    print(f"{torch.get_num_threads()} threads, {'cold' if arguments.cold else 'warm'}")
    found = {}
    for size in arguments.sizes:
        times = found[size] = measure(size, arguments.repetitions, arguments.cold)
        print(f"{size} normals{'ms':>16}{'quartiles':>18}{'over torch single':>20}{'per µs':>9}")
        for name, of_method in times.items():
            low, median, high = 1e3 * np.quantile(of_method, [0.25, 0.5, 0.75])
            ratio = np.median(np.divide(of_method, times["torch single"]))
            print(f"  {name:<18}{median:11.3f}{low:10.3f}–{high:.3f}", end="")
            print(f"{ratio:18.2f}{size / (1e3 * median):11.0f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
