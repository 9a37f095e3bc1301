"""Say of each kind of module that people write how it is trained, or why not, and if rightly.

    python benchmarks/zoo.py [--settings 12] [--only WORD]

Layers with random settings, bodies as model zoos have them, and modules that mix records or fail.
Each is tried as a fit tries it. Where it is taken, its clipped sums over 9 records, with clipping
norms ∞, the median and 1e-3, are held against a loop of one backward pass per record, in double
precision; where training is random, each parameter must move that moves in plain training.

*wrong*: a sum differs from the loop's by more than 1e-8 of the sum of the clipped norms. *learns
nothing*: a parameter has gradient 0 that has another in the loop. Neither may occur.

Layers of Opacus take part where it is installed.
"""

import argparse
import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from skdp.engine.modules.checks import tried
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum

try:
    from opacus import layers as of_opacus
except ImportError:
    of_opacus = None

N_RECORDS, TOLERANCE = 9, 1e-8
OUTCOMES = ("book-keeping", "vmap", "refused", "wrong", "learns nothing")


class Species(NamedTuple):
    """What makes a module, the shape of its records, and the number of words if they are integers.

    Attributes
    ----------
    make : callable
        Returns a new module.
    shape : tuple of int
        Shape of a record.
    words : int, default=0
        Records are integers below it; 0 is normal numbers.
    factor : float, default=1.0
        By which normal numbers are multiplied.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (6,)
    words: int = 0
    factor: float = 1.0


class Verdict(NamedTuple):
    """One of `OUTCOMES`, and the error or the message."""

    outcome: str
    error: float = 0.0
    said: str = ""


# --- what is measured -----------------------------------------------------------------------------


def loss(outputs, y):
    """Half the squared distance from one number."""
    return 0.5 * (outputs.flatten(1) - y[:, None]).square().sum(1)


class Case(NamedTuple):
    """A module that was tried, how its gradients are taken, and records of it with targets."""

    flat: FlatModule
    method: str
    module: nn.Module
    x: torch.Tensor
    y: torch.Tensor

    def records(self, flat):
        """Return them as a batch for the module, or for one like it."""
        dtype = flat.flat.dtype if self.x.is_floating_point() else self.x.dtype
        y = self.y.to(flat.flat.dtype)
        return NetworkRecords(self.x.numpy(), y.numpy(), flat.flat, dtype=dtype).take(slice(None))


def tried_case(species, seed=0, device=None, dtype=torch.float64):
    """Return a module as a fit tries it on a device; an error says why it is refused."""
    torch.manual_seed(seed)
    targets = torch.randn(33, dtype=torch.float64)
    module = species.make().to(dtype)
    x = torch.randint(max(2, species.words), (N_RECORDS, *species.shape))
    if not species.words:
        x = species.factor * torch.randn(x.shape, dtype=torch.float64)
    try:
        few = x[:2] if species.words else x[:2].to(dtype)
        n_outputs = copy.deepcopy(module).eval()(few).shape[1]
    except Exception:
        n_outputs = 3  # what the trial says of it is what counts
    flat = FlatModule(module, device)
    how = {"shape": species.shape, "n_outputs": n_outputs, "integers": True}
    method, like = tried(flat, loss, targets.to(dtype), **how)
    return Case(flat, method, module, x.to(like.dtype), targets[:N_RECORDS].to(dtype))


def examined(species, seed=0):
    """Return a module's verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            case = tried_case(species, seed)
        except Exception as error:
            crash = "" if isinstance(error, ValueError) else f"CRASH {type(error).__name__}: "
            return Verdict("refused", said=crash + str(error))
        return _compared(case)


def _compared(case):
    flat, method, module, x, y = case
    reference = copy.deepcopy(module).train()
    for part in reference.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()  # only a frozen one is taken
    parameters = [p for p in reference.parameters() if p.requires_grad]

    def gradient(i):
        value = loss(reference(x[i : i + 1]), y[i : i + 1]).sum()
        found = torch.autograd.grad(
            value, parameters, allow_unused=True, materialize_grads=True, retain_graph=False
        )
        return [g.flatten() for g in found]

    passes = []
    for chance in (1, 2):
        torch.manual_seed(chance)
        passes.append(reference(x))
    single = [gradient(i) for i in range(len(x))]
    each = torch.stack([torch.cat(one) for one in single])
    records = case.records(flat)
    worst, norms = 0.0, each.norm(dim=1)
    for clip in (math.inf, float(norms.median()), 1e-3):
        found = -NetworkClippedSum(flat, loss, clip, method=method)(flat.flat.clone(), records)
        moved = found.split([len(g) for g in single[0]])
        for name, own, of_loop in zip(flat.trained, moved, zip(*single, strict=True), strict=True):
            if not own.any() and any(g.any() for g in of_loop):
                return Verdict("learns nothing", said=name)
        factors = (clip / norms.clamp(min=clip)) if clip < math.inf else torch.ones_like(norms)
        error = (found - factors @ each).norm() / (factors * norms).sum()
        worst = max(worst, float(error))
    if not torch.equal(*passes):
        return Verdict(method, said="random in training")
    return Verdict("wrong" if worst > TOLERANCE else method, worst)


# --- layers, with settings as the tests of Opacus draw them ---------------------------------------


def _one_of(*values):
    return values[int(torch.randint(len(values), ()))]


def _flat(*layers):
    return nn.Sequential(*layers, nn.Flatten())


class Through(nn.Module):
    """A layer in a forward pass of its own: `body` gets the module and the records."""

    def __init__(self, body, **parts):
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        """Call the body."""
        return self.body(self, x)


def _linear():
    shape = _one_of((5,), (3, 5), (2, 3, 5))
    layer = nn.Linear(5, 4, bias=_one_of(True, False))
    if _one_of(True, True, False) or shape == (5,):
        return Species(lambda: _flat(layer), shape)
    return Species(
        lambda: Through(lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1).flatten(1),
                        layer=layer), shape)  # fmt: skip


def _convolution(n_axes):
    groups = _one_of(1, 2)
    padding = _one_of(0, 1, 2, "same", "valid")
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n_axes - 1](
        2 * groups, 3 * groups, _one_of(1, 2, 3), stride=1 if padding == "same" else _one_of(1, 2),
        padding=padding, dilation=_one_of(1, 2), groups=groups, bias=_one_of(True, False),
        padding_mode=_one_of("zeros", "reflect", "replicate", "circular"),
    )  # fmt: skip
    return Species(lambda: _flat(layer), (2 * groups, *(6, 5, 7)[:n_axes]))


def _embedding():
    layer = nn.Embedding(7, 4, padding_idx=_one_of(None, 0, 3))
    shape = _one_of((), (4,), (2, 3), (2, 3, 2))
    if shape and _one_of(True, False):
        return Species(
            lambda: Through(lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1).flatten(1),
                            layer=layer), shape, 7)  # fmt: skip
    return Species(lambda: _flat(layer), shape, 7)


def _bag(mode):
    layer = nn.EmbeddingBag(7, 4, mode=mode, padding_idx=_one_of(None, 0, 3))
    return Species(lambda: layer, (5,), 7)


def _trailing_norm(kind):
    shape = _one_of((5,), (4, 5))
    return Species(lambda: _flat(kind(shape)), (*_one_of((), (3,), (2, 3)), *shape))


def _instance_norm(n_axes):
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[n_axes - 1]
    return Species(lambda: _flat(kind(4, affine=True)), (4, *(3, 5, 2)[:n_axes]))


def _group_norm():
    groups, shape = _one_of(1, 2), _one_of((), (3,), (3, 2))
    return Species(lambda: _flat(nn.GroupNorm(groups, 4)), (4, *shape))


def _recurrent(kind):
    layer = kind(3, 4, num_layers=_one_of(1, 2), bidirectional=_one_of(True, False),
                 bias=_one_of(True, False), batch_first=_one_of(True, True, False))  # fmt: skip

    def body(m, x):
        x = x if m.layer.batch_first else x.transpose(0, 1)
        out = m.layer(x)[0]
        return (out if m.layer.batch_first else out.transpose(0, 1)).flatten(1)

    return Species(lambda: Through(body, layer=layer), (5, 3))


def _attention(kind):
    width = _one_of(4, 6)
    other = _one_of(None, 5)
    layer = kind(width, 2, bias=_one_of(True, False), add_bias_kv=_one_of(True, False),
                 add_zero_attn=_one_of(True, False), kdim=other, vdim=other,
                 **({"batch_first": True} if kind is nn.MultiheadAttention else {}))  # fmt: skip
    first = kind is nn.MultiheadAttention

    def body(m, x):
        keys = x[..., :5] if other else x[..., :width]
        parts = [x[..., :width], keys, keys]
        parts = parts if first else [t.transpose(0, 1) for t in parts]
        out = m.layer(*parts)[0]
        return (out if first else out.transpose(0, 1)).flatten(1)

    return Species(lambda: Through(body, layer=layer), (3, 6))


def _sequence_bias():
    return Species(
        lambda: Through(lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1).flatten(1),
                        layer=of_opacus.SequenceBias(4)), (3, 4))  # fmt: skip


def _cells(kind):
    def body(m, x):
        state = None  # the cell makes zeros
        for t in range(x.shape[1]):
            state = m.cell(x[:, t], state)
        return m.head(state[0] if isinstance(state, tuple) else state)

    return Species(lambda: Through(body, cell=kind(3, 4), head=nn.Linear(4, 3)), (5, 3))


FAMILIES = {
    "Linear": _linear,
    **{f"Conv{n}d": lambda n=n: _convolution(n) for n in (1, 2, 3)},
    "Embedding": _embedding,
    **{f"EmbeddingBag {mode}": lambda m=mode: _bag(m) for mode in ("sum", "mean", "max")},
    "GroupNorm": _group_norm,
    "LayerNorm": lambda: _trailing_norm(nn.LayerNorm),
    "RMSNorm": lambda: _trailing_norm(nn.RMSNorm),
    **{f"InstanceNorm{n}d": lambda n=n: _instance_norm(n) for n in (1, 2, 3)},
    **{kind.__name__: lambda k=kind: _recurrent(k) for kind in (nn.RNN, nn.GRU, nn.LSTM)},
    **{k.__name__: lambda k=k: _cells(k) for k in (nn.RNNCell, nn.GRUCell, nn.LSTMCell)},
    "MultiheadAttention": lambda: _attention(nn.MultiheadAttention),
}
if of_opacus is not None:
    FAMILIES |= {
        **{f"opacus {k.__name__}": lambda k=k: _recurrent(k)
           for k in (of_opacus.DPRNN, of_opacus.DPGRU, of_opacus.DPLSTM)},
        "opacus DPMultiheadAttention": lambda: _attention(of_opacus.DPMultiheadAttention),
        "opacus SequenceBias": _sequence_bias,
    }  # fmt: skip


# --- bodies as model zoos have them ---------------------------------------------------------------


class Plus(nn.Module):
    """x + f(x), of which training drops some."""

    def __init__(self, *layers, drop=0.0, scale=None):
        super().__init__()
        self.inner, self.drop = nn.Sequential(*layers), drop
        self.scale = None if scale is None else nn.Parameter(scale)

    def forward(self, x):
        """Add."""
        z = self.inner(x)
        z = z if self.scale is None else z * self.scale
        if self.drop and self.training:
            kept = torch.rand(len(x), *[1] * (x.ndim - 1), device=x.device) > self.drop
            z = z * kept / (1 - self.drop)
        return x + z


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x):
        """Weigh channels."""
        z = F.silu(self.first(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.second(z))


class StandardizedConv(nn.Conv2d):
    """Weights are standardised before use."""

    def forward(self, x):
        """Convolve."""
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, padding=1)


class ChannelsLastNorm(nn.LayerNorm):
    """Layer norm over channels of images."""

    def forward(self, x):
        """Normalise."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tokens(nn.Module):
    """Patches of images as tokens, with a class token and positions."""

    def __init__(self, width, n):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, n + 1, width))

    def forward(self, x):
        """Cut."""
        z = self.patches(x).flatten(2).mT
        return torch.cat([self.token.expand(len(x), -1, -1), z], 1) + self.positions


class SelfAttention(nn.Module):
    """Attention of positions, whole or in windows that are shifted."""

    def __init__(self, width, shift=0):
        super().__init__()
        self.qkv, self.out, self.shift = nn.Linear(width, 3 * width), nn.Linear(width, width), shift
        self.bias = nn.Parameter(torch.zeros(4, 4)) if shift else None

    def forward(self, x):
        """Attend."""
        shape = x.shape
        if self.shift:
            x = x.roll(self.shift, 1).unflatten(1, (-1, 4))
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        z = self.out((scores if self.bias is None else scores + self.bias).softmax(-1) @ v)
        return z.reshape(shape).roll(-self.shift, 1)


class First(nn.Module):
    """The first position."""

    def forward(self, x):
        """Pick."""
        return x[:, 0]


class Mean(nn.Module):
    """The mean over the middle axis."""

    def forward(self, x):
        """Average."""
        return x.mean(1)


class Turned(nn.Module):
    """Layers on the other axis."""

    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        """Turn, and turn back."""
        return self.inner(x.mT).mT


class Beside(nn.Module):
    """Outputs of branches, one after the other; with the input before them if dense."""

    def __init__(self, *branches, dense=False):
        super().__init__()
        self.branches, self.dense = nn.ModuleList(branches), dense

    def forward(self, x):
        """Join."""
        return torch.cat([x] * self.dense + [branch(x) for branch in self.branches], 1)


class LoRA(nn.Module):
    """A frozen layer and a product of two narrow ones."""

    def __init__(self, width):
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 2, bias=False), nn.Linear(2, width, bias=False)

    def forward(self, x):
        """Add."""
        return self.frozen(x) + self.up(self.down(x))


class Experts(nn.Module):
    """All experts see all records, and a gate weighs them."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 3), nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, x):
        """Weigh."""
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return (self.gate(x).softmax(1)[:, :, None] * outputs).sum(1)


def pooled(n, n_out=3):
    """Return the end of an image network."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, n_out)


def frozen_norms():
    """Return a residual body with batch norms in evaluation, and a head."""
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        Plus(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)),
    )  # fmt: skip
    for part in body.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.requires_grad_(False).eval()
            part.running_mean.normal_()
    return nn.Sequential(body, *pooled(4))


class Frozen(nn.Module):
    """Batch norms stay in evaluation, as fine-tuning scripts write it."""

    def __init__(self):
        super().__init__()
        self.net = frozen_norms()

    def train(self, mode=True):
        """Train all but the norms."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
        return self

    def forward(self, x):
        """Call."""
        return self.net(x)


def inverted(width):
    """Return the block of MobileNetV3 and EfficientNet."""
    return Plus(
        nn.Conv2d(width, 8, 1, bias=False), nn.GroupNorm(2, 8), nn.Hardswish(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.GroupNorm(2, 8), nn.SiLU(),
        Squeeze(8), nn.Conv2d(8, width, 1, bias=False), nn.GroupNorm(2, width), drop=0.2,
    )  # fmt: skip


class UNet(nn.Module):
    """Down, up by a transposed convolution, and across."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(6, 4, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        """Map."""
        across = F.relu(self.first(x))
        z = F.relu(self.up(F.relu(self.down(across))))
        return self.last(torch.cat([across, z], 1)).mean((2, 3))


class Ends(nn.Module):
    """The last states of a recurrent layer, both ways."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x):
        """Read."""
        state = self.layer(x)[1]
        state = state[0] if isinstance(state, tuple) else state
        return self.head(state.transpose(0, 1).flatten(1))


def tied():
    """Two layers with one weight."""
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(6, 3))


def only(module, word):
    """Train parameters whose name has a word in it."""
    for name, p in module.named_parameters():
        p.requires_grad_(word in name)
    return module


def mlp():
    """Return a small perceptron."""
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def hooked():
    """Return a perceptron with a user's hook and pre-hook."""
    module = mlp()
    module[0].register_forward_hook(lambda part, args, out: 2 * out)
    module[2].register_forward_pre_hook(lambda part, args: (args[0] + 1,))
    return module


def with_head(body, **parts):
    """Return a body of six numbers, under a linear head."""
    return lambda: Through(lambda m, x: m.head(body(m, x)), head=nn.Linear(6, 3), **parts)


def between(*layers, width=6):
    """Return layers between two linear ones."""
    return lambda: nn.Sequential(nn.Linear(6, 6), *layers, nn.Linear(width, 3))


IMAGE, SEQUENCE, WORDS = (3, 8, 8), (4, 6), (5,)
BODIES = {
    "perceptron": Species(mlp),
    "SampleConvNet": Species(
        lambda: only(
            nn.Sequential(
                nn.Conv2d(1, 16, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 2), nn.ReLU(),
                nn.Flatten(), nn.Linear(8, 10)
            ), "w"), (1, 22, 22)),
    "LeNet": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 3)), IMAGE),
    "VGG": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64, 8), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(8, 3)), IMAGE),
    "ResNet with GroupNorm": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
            Plus(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4)), *pooled(4)), IMAGE),
    "ResNet with frozen BatchNorm": Species(Frozen, IMAGE),
    "ResNet v2 with InstanceNorm": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), Plus(nn.InstanceNorm2d(4, affine=True), nn.ReLU(),
                                     nn.Conv2d(4, 4, 1)), *pooled(4)), IMAGE),
    "NFNet, standardised weights": Species(
        lambda: nn.Sequential(StandardizedConv(3, 4, 3), nn.ReLU(), *pooled(4)), IMAGE),
    "MobileNetV3, EfficientNet": Species(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, 2), inverted(4), *pooled(4)), IMAGE),
    "DenseNet": Species(
        lambda: nn.Sequential(
            Beside(nn.Conv2d(3, 4, 3, padding=1), dense=True), nn.GroupNorm(1, 7), nn.ReLU(),
            Beside(nn.Conv2d(7, 2, 3, padding=1), dense=True), *pooled(9)), IMAGE),
    "Inception": Species(
        lambda: nn.Sequential(
            Beside(nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(3, 2, 5, padding=2),
                   nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(3, 2, 1))), *pooled(8)), IMAGE),
    "SqueezeNet": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True),
            Beside(nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 3, padding=1)), *pooled(6)), IMAGE),
    "ShuffleNet": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.ChannelShuffle(2), nn.Conv2d(4, 4, 3, groups=4), *pooled(4)),
        IMAGE),
    "ConvNeXt": Species(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 2, 2), ChannelsLastNorm(4),
            Plus(nn.Conv2d(4, 4, 3, padding=1, groups=4), ChannelsLastNorm(4), nn.Conv2d(4, 8, 1),
                 nn.GELU(), nn.Conv2d(8, 4, 1), scale=1e-3 * torch.ones(4, 1, 1), drop=0.1),
            *pooled(4)), IMAGE),
    "ViT": Species(
        lambda: nn.Sequential(
            Tokens(6, 4), Plus(nn.LayerNorm(6), SelfAttention(6)),
            Plus(nn.LayerNorm(6), nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)), First(),
            nn.LayerNorm(6), nn.Linear(6, 3)), IMAGE),
    "ViT, inputs of size 100": Species(
        lambda: nn.Sequential(
            Tokens(6, 4), Plus(nn.LayerNorm(6), SelfAttention(6)), First(), nn.Linear(6, 3)),
        IMAGE, 0, 100.0),
    "Swin, shifted windows": Species(
        lambda: nn.Sequential(
            nn.Linear(6, 6), Plus(nn.LayerNorm(6), SelfAttention(6, shift=2)), Mean(),
            nn.Linear(6, 3)), (8, 6)),
    "MLP-Mixer": Species(
        lambda: nn.Sequential(
            Plus(nn.LayerNorm(6), Turned(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))),
            Plus(nn.LayerNorm(6), nn.Linear(6, 6)), Mean(), nn.Linear(6, 3)), SEQUENCE),
    "U-Net": Species(UNet, IMAGE),
    "PixelShuffle": Species(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2), *pooled(2)), IMAGE),
    "LPPool, Fold": Species(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softplus(), nn.LPPool2d(2, 2), nn.Unfold(2),
                              Mean(), nn.Linear(9, 3)), IMAGE),
    "volumes": Species(
        lambda: nn.Sequential(
            nn.Conv3d(1, 2, 3), nn.InstanceNorm3d(2, affine=True), nn.ReLU(), nn.MaxPool3d(2),
            nn.Flatten(), nn.Linear(16, 3)), (1, 6, 6, 6)),
    "TextCNN": Species(
        lambda: nn.Sequential(
            nn.Embedding(9, 4), Turned(nn.Conv1d(4, 6, 2), nn.ReLU()), Mean(), nn.Linear(6, 3)),
        WORDS, 9),
    "fastText": Species(lambda: nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 3)), WORDS, 9),
    "bag with offsets": Species(
        lambda: Through(
            lambda m, x: m.bag(x.flatten(), x.shape[1] * torch.arange(len(x), device=x.device)),
            bag=nn.EmbeddingBag(9, 4)), WORDS, 9),
    "bag with weights": Species(
        lambda: Through(
            lambda m, x: m.bag(x, per_sample_weights=torch.softmax(m.weights, 0).expand(x.shape)),
            bag=nn.EmbeddingBag(9, 4, mode="sum"), weights=nn.Parameter(torch.randn(5))), WORDS, 9),
    "BiLSTM on words": Species(
        lambda: nn.Sequential(nn.Embedding(9, 4), Ends(nn.LSTM(4, 3, bidirectional=True,
                                                               batch_first=True), 6)), WORDS, 9),
    "GRU, two layers with dropout": Species(
        lambda: Ends(nn.GRU(6, 4, 2, batch_first=True, dropout=0.2), 8), SEQUENCE),
    "WaveNet": Species(
        lambda: nn.Sequential(
            Plus(nn.Conv1d(4, 8, 2, padding="same", dilation=2), nn.GLU(1)), nn.Flatten(),
            nn.Linear(24, 3)), SEQUENCE),
    "TransformerEncoderLayer": Species(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dropout=0.0), Mean(),
            nn.Linear(6, 3)), SEQUENCE),
    "TransformerEncoder with dropout": Species(
        lambda: nn.Sequential(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2), Mean(),
            nn.Linear(6, 3)), SEQUENCE),
    "Llama: RMSNorm, SwiGLU": Species(
        lambda: nn.Sequential(
            nn.Embedding(9, 6), Plus(nn.RMSNorm(6), SelfAttention(6)),
            Plus(nn.RMSNorm(6), nn.Linear(6, 8, bias=False), nn.GLU(), nn.Linear(4, 6)),
            Mean(), nn.Linear(6, 3)), WORDS, 9),
    "GPT, embedding tied to the head": Species(
        lambda: Through(
            lambda m, x: F.linear(torch.tanh(m.words(x)).mean(1), m.words.weight),
            words=nn.Embedding(9, 6)), WORDS, 9),
    "FNet": Species(
        lambda: Through(
            lambda m, x: m.head(torch.fft.fft(m.first(x), dim=1).real.flatten(1)),
            first=nn.Linear(6, 4), head=nn.Linear(16, 3)), SEQUENCE),
    "deep sets": Species(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), Mean(), nn.Linear(5, 3)), SEQUENCE),
    "experts, dense": Species(Experts),
    "LoRA": Species(lambda: nn.Sequential(LoRA(6), nn.Tanh(), LoRA(6), nn.Linear(6, 3))),
    "BitFit": Species(lambda: only(mlp(), "bias")),
    "frozen first layer": Species(lambda: only(mlp(), "2.")),
    "layer that is not used": Species(
        lambda: Through(lambda m, x: m.a(x), a=nn.Linear(6, 3), b=nn.Linear(6, 3))),
    "no_grad and detach inside": Species(
        with_head(lambda m, x: m.a(x).detach() + m.b(x), a=nn.Linear(6, 6), b=nn.Linear(6, 6))),
    "tied layers": Species(tied),
    "SampleTiedWeights": Species(
        lambda: Through(
            lambda m, x: F.linear(m.words(x).mean(1), m.words.weight, m.bias),
            words=nn.Embedding(9, 4), bias=nn.Parameter(torch.randn(9))), WORDS, 9),
    "layer used twice": Species(
        with_head(lambda m, x: m.a(torch.tanh(m.a(x))), a=nn.Linear(6, 6))),
    "norm used twice": Species(
        with_head(lambda m, x: m.n(m.a(m.n(x))), a=nn.Linear(6, 6), n=nn.LayerNorm(6))),
    "own parameters": Species(
        with_head(lambda m, x: torch.tanh(x @ m.w) * m.s, w=nn.Parameter(torch.randn(6, 6)),
                  s=nn.Parameter(torch.ones(6)))),
    "PReLU": Species(between(nn.PReLU())),
    "Bilinear": Species(
        with_head(lambda m, x: m.b(x, torch.tanh(x)), b=nn.Bilinear(6, 6, 6))),
    "ConvTranspose1d": Species(
        lambda: _flat(nn.ConvTranspose1d(4, 2, 3, 2)), SEQUENCE),
    "weight_norm": Species(
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
                              nn.Linear(4, 3))),
    "orthogonal": Species(
        lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(6, 6)),
                              nn.Linear(6, 3))),
    "records as positions": Species(
        lambda: Through(lambda m, x: m.b(torch.tanh(m.a(x.reshape(-1, 6))).reshape(len(x), -1)),
                        a=nn.Linear(6, 2), b=nn.Linear(8, 3)), SEQUENCE),
    "hooks of the user": Species(hooked),
    "relu_ of an output": Species(with_head(lambda m, x: F.relu_(m.a(x)), a=nn.Linear(6, 6))),
    "noise on inputs": Species(
        with_head(lambda m, x: x + 0.1 * torch.randn_like(x) if m.training else x)),
    "checkpoint, reentrant": Species(
        with_head(lambda m, x: checkpoint(m.a, m.b(x), use_reentrant=True),
                  a=nn.Linear(6, 6), b=nn.Linear(6, 6))),
    "fx": Species(lambda: torch.fx.symbolic_trace(mlp())),
    "BatchNorm1d, frozen": Species(
        lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6).requires_grad_(False).eval(),
                              nn.Linear(6, 3))),
}  # fmt: skip


# --- what broke once: learned nothing, was wrong, or mixed records unseen -------------------------


def dropped(m, x):
    """Drop in place what a layer put out."""
    return F.dropout(m.b(torch.relu(m.a(x))), 0.1, m.training, inplace=True).relu()


def twice(m, x):
    """Two passes in training."""
    z = torch.tanh(m.b(torch.tanh(m.a(x))))
    return z + torch.tanh(m.b(z)) if m.training else z


def recomputed(m, x):
    """Recompute a layer in training."""
    z = torch.tanh(m.a(x))
    return checkpoint(m.b, z, use_reentrant=False) if m.training else m.b(z)


def dropped_input(m, x):
    """Drop in place what a layer was given."""
    z = 2.0 * m.a(x)
    return m.b(F.dropout(z, 0.1, m.training, inplace=True))


def connections(m, x):
    """Drop weights in training."""
    z = torch.tanh(m.a(x))
    return F.linear(z, F.dropout(m.b.weight, 0.2)) if m.training else m.b(z)


def two(body):
    """Return a body with two layers of six."""
    return with_head(body, a=nn.Linear(6, 6), b=nn.Linear(6, 6))


def offset(factor):
    """Return a module whose offset has a small share of the gradient."""
    return lambda: Through(
        lambda m, x: m.layer(factor * x) + m.off,
        layer=nn.Linear(6, 3), off=nn.Parameter(torch.zeros(3)),
    )  # fmt: skip


BROKE = {
    "dropout in place on an output": Species(two(dropped)),
    "layer used twice in training": Species(two(twice)),
    "dropout in place on an input": Species(two(dropped_input)),
    "checkpoint in training": Species(two(recomputed)),
    "offset beside inputs of 100": Species(offset(100.0)),
    "offset beside inputs of 1000": Species(offset(1000.0)),
    "offset beside inputs of 1e6": Species(offset(1e6)),
    "offset of scale .001": Species(
        with_head(lambda m, x: torch.tanh(m.a(x)) + 1e-3 * m.off, a=nn.Linear(6, 6),
                  off=nn.Parameter(torch.zeros(6)))),
    "DropConnect in training": Species(two(connections)),
}  # fmt: skip


# --- what has no gradient of one record -----------------------------------------------------------


def mixed_experts(m, x):
    """Send records to experts by index."""
    out, chosen = torch.zeros_like(x), m.a(x).argmax(1) > 2
    out[chosen], out[~chosen] = m.a(x[chosen]), m.b(x[~chosen])
    return out


def across(m, x):
    """Attend to other records."""
    return (x @ x.T / 10).softmax(1) @ m.a(x)


MIXES = {
    "mean of batches beyond 16": Species(
        with_head(lambda m, x: x - x.mean(0) if len(x) > 16 else x)),
    "branch on (x > 3).any()": Species(
        lambda: Through(lambda m, x: m.a(x) if (x > 3).any() else m.b(x), a=nn.Linear(6, 3),
                        b=nn.Linear(6, 3))),
    "BatchNorm1d": Species(between(nn.BatchNorm1d(6))),
    "BatchNorm2d": Species(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *pooled(4)), IMAGE),
    "InstanceNorm with running statistics": Species(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True),
                              *pooled(4)), IMAGE),
    "mean of the batch": Species(with_head(lambda m, x: x - x.mean(0))),
    "largest value of the batch": Species(with_head(lambda m, x: x / x.abs().max().clamp(min=3))),
    "softmax over the batch": Species(with_head(lambda m, x: x.softmax(0))),
    "roll over the batch": Species(with_head(lambda m, x: x + x.roll(1, 0))),
    "attention over the batch": Species(with_head(across, a=nn.Linear(6, 6))),
    "encoder with batch_first=False": Species(
        lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), Mean(),
                              nn.Linear(6, 3)), SEQUENCE),
    "mix-up in training": Species(
        with_head(lambda m, x: 0.7 * x + 0.3 * x[torch.randperm(len(x))] if m.training else x)),
    "spectral_norm": Species(
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)),
                              nn.Linear(6, 3))),
}  # fmt: skip


REFUSED = {
    "experts by index": Species(two(mixed_experts)),
    "checkpoint always": Species(
        with_head(lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=nn.Linear(6, 6))
    ),
    "RReLU": Species(between(nn.RReLU())),
    "Embedding with max_norm": Species(lambda: _flat(nn.Embedding(9, 4, max_norm=1.0)), WORDS, 9),
    "sparse Embedding": Species(lambda: _flat(nn.Embedding(9, 4, sparse=True)), WORDS, 9),
    "a tuple": Species(lambda: nn.LSTM(6, 3, batch_first=True), SEQUENCE),
    "no parameters": Species(lambda: nn.Sequential(nn.Tanh())),
    "scripted": Species(lambda: torch.jit.script(mlp())),
    "scripted part": Species(lambda: nn.Sequential(torch.jit.script(mlp()), nn.Linear(3, 3))),
    "LazyLinear": Species(lambda: nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3))),
    "DataParallel": Species(lambda: nn.DataParallel(mlp())),
    "old weight_norm": Species(lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 3)))),
    "branch on a value, not by book-keeping": Species(
        with_head(lambda m, x: x @ m.w if float(x.sum()) < 1e9 else x,
                  w=nn.Parameter(torch.ones(6, 6)))),
}  # fmt: skip
SECTIONS = {"bodies": BODIES, "what broke once": BROKE, "mix records": MIXES, "others": REFUSED}


def rows(settings, only_word=""):
    """Yield section, name and verdicts of each kind."""
    for name, draw in FAMILIES.items():
        if only_word in name:
            verdicts = []
            for seed in range(settings):
                torch.manual_seed(seed)
                verdicts.append(examined(draw(), seed))
            yield "layers", name, verdicts
    for section, kinds in SECTIONS.items():
        for name, species in kinds.items():
            if only_word in name:
                yield section, name, [examined(species, seed) for seed in range(3)]


def main():
    """Print the table and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=12, help="random ones for each layer")
    parser.add_argument("--only", default="", help="part of a name")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, Opacus {'there' if of_opacus else 'missing'}")
    totals, before = {}, None
    for section, name, verdicts in rows(arguments.settings, arguments.only):
        if section != before:
            print(
                f"\n{section:<38}" + "".join(f"{o:>15}" for o in OUTCOMES) + f"{'worst error':>13}"
            )
            before = section
        counts = Counter(v.outcome for v in verdicts)
        totals.setdefault(section, Counter()).update(counts)
        cells = "".join(f"{counts[o] or '':>15}" for o in OUTCOMES)
        said = next((v.said for v in verdicts if v.said), "").split("\n")[0][:100]
        print(f"{name:<38}{cells}{max(v.error for v in verdicts):>13.0e}  {said}", flush=True)
    print(f"\n{'total':<38}" + "".join(f"{o:>15}" for o in OUTCOMES))
    for section, counts in totals.items():
        print(f"{section:<38}" + "".join(f"{counts[o]:>15}" for o in OUTCOMES))


if __name__ == "__main__":
    main()
