"""A scheduler of Dask that loses, repeats and delays tasks, and what it is compared with."""

import pickle

import numpy as np
from chunks.common import data

from skdp.rows.dask_rows import Sealed

X, Y = data(120)


class Faulty:
    """Computes a graph in some order, with pickles between tasks, as a cluster does.

    A task may be killed when it has run (and runs again, up to three times), be done by two workers
    of whom either answers, or come late; answers that are still waited for may be lost with a
    worker, and are computed again. Without a seed nothing of this happens.
    """

    def __init__(self, seed=None, events=(0.1, 0.1, 0.1)):
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.events, self.happened, self.keys, self.n_bytes = events, 0, [], 0

    def __call__(self, graph, keys, **settings):
        graph, done, left = {key: tuple_of(node) for key, node in graph.items()}, {}, []
        self.keys += list(graph)
        wanted = list(keys)
        while wanted:  # depth first: a key behind those that it needs
            key = wanted.pop()
            left.append(key)
            wanted += needed(graph, key)
        left = list(dict.fromkeys(left[::-1]))
        while left:
            ready = [key for key in left if not set(needed(graph, key)) - set(done)]
            key = ready[0] if self.rng is None else ready[self.rng.integers(len(ready))]
            if self.happens(2) and len(ready) > 1:
                continue  # a straggler
            done[key] = self.run(graph, key, done)
            left.remove(key)
            if self.happens(0):  # a worker dies, and with it what it held
                lost = list(done)[self.rng.integers(len(done))]
                if any(lost in needed(graph, other) for other in left):
                    del done[lost]
                    left.append(lost)
        return [sent(done[key]) for key in keys]

    def run(self, graph, key, done):
        for _ in range(4):
            answer = sent(call(graph[key], done))
            if not self.happens(0):
                break
        if self.happens(1):
            answer = sent(call(graph[key], done))
        return answer

    def happens(self, event):
        found = self.rng is not None and self.rng.random() < self.events[event]
        self.happened += found
        return found


def tuple_of(node):
    """A task whose arguments have been sent."""
    if not is_task(node):
        return node
    return tuple(sent(one) if isinstance(one, Sealed) else one for one in node)


def needed(graph, key):
    node = graph[key]
    return list(keys_of(node[1:], graph)) if is_task(node) else []


def keys_of(arguments, graph):
    for one in arguments:
        if isinstance(one, list):
            yield from keys_of(one, graph)
        elif isinstance(one, str | tuple) and one in graph:
            yield one


def is_task(node):
    return type(node) is tuple and callable(node[0])


def call(node, done):
    def value(one):
        if isinstance(one, list):
            return [value(each) for each in one]
        return done[one] if isinstance(one, str | tuple) and one in done else one

    return node[0](*map(value, node[1:])) if is_task(node) else node


def sent(value):
    """What arrives where a pickle is sent to."""
    return pickle.loads(pickle.dumps(value))
