import copy

import pytest
import torch
from tiny import KINDS, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode

from aft_train import mixers
from aft_train.mixers import AftConv, OneTapKernel, kernel_entropy
from aft_train.model import dropped


def by_equation(mixer, x, w):
    """AFT eq. 2 word by word in float64: x [T, d], w [T, T] or a matrix per channel [d, T, T]. -> [T, d]"""
    x, mixer = x.double(), copy.deepcopy(mixer).double()
    q, k, v = mixer.q(x), mixer.k(x), mixer.v(x)
    k = k.repeat_interleave(v.shape[1] // k.shape[1], dim=1)
    y = torch.zeros_like(v)
    for t in range(len(x)):
        for c in range(v.shape[1]):
            e = torch.exp(k[:, c] + (w if w.dim() == 2 else w[c])[t])
            y[t, c] = (e * v[:, c]).sum() / e.sum()
    return mixer.out(torch.sigmoid(q) * y)


def local_bias(mixer, tokens, window, causal, outside):
    w = (mixer.pos_u @ mixer.pos_v.T)[:tokens, :tokens].double()
    for t in range(tokens):
        for s in range(tokens):
            if abs(t - s) >= window:
                w[t, s] = outside
            if causal and s > t:
                w[t, s] = -torch.inf
    return w


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("global_sum", [True, False])
@pytest.mark.parametrize("learning", [True, False])
def test_aft_local_is_equation_2(causal, global_sum, learning):
    task = "text-generation" if causal else "text-classification"
    mixer = tiny_model(task, "aft-local", window=3, global_sum=global_sum).blocks[0].mixer
    x = torch.randn(12, 8)
    want = by_equation(mixer, x, local_bias(mixer, 12, 3, causal, 0.0 if global_sum else -torch.inf))
    with torch.set_grad_enabled(learning):
        got = mixer(x[None])[0]
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_aft_conv_of_a_sequence_is_equation_6(causal):
    """A causal kernel ends at the query, the other is centred on it."""
    mixer = tiny_model("text-generation" if causal else "text-classification", "aft-conv", kernel=(4,)).blocks[0].mixer
    r = mixer.conv.weight.double()
    r = (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True) * mixer.conv.gain.double()[:, None]  # eq. 8
    r = r + mixer.conv.bias.double()[:, None]
    w = torch.zeros(8, 12, 12, dtype=torch.float64)
    for t in range(12):
        for j in range(4):
            s = t + j - (3 if causal else 2)
            if 0 <= s < 12:
                w[:, t, s] = r[:, j].repeat_interleave(4)
        if causal:
            w[:, t, t + 1 :] = -torch.inf
    x = torch.randn(12, 8)
    for learning in (True, False):
        with torch.set_grad_enabled(learning):
            got = mixer(x[None])[0]
        torch.testing.assert_close(got.double(), by_equation(mixer, x, w), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("global_sum", [True, False])
def test_aft_conv_by_convolution_is_aft_conv_by_matrices(global_sum, monkeypatch):
    mixer = tiny_model("image-classification", "aft-conv", kernel=(3, 5), global_sum=global_sum).blocks[0].mixer
    x = torch.randn(2, 12, 8)
    dense = mixer(x, (3, 4))
    monkeypatch.setattr(AftConv, "DENSE_TOKENS", 0)
    torch.testing.assert_close(mixer(x, (3, 4)), dense, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", ["text-generation", "text-classification"])
@pytest.mark.parametrize("global_sum", [True, False])
@pytest.mark.parametrize("kernel", [1, 4, 5, 11, 12, 13, 30])
@pytest.mark.parametrize("chunk", [2, 5, 32])
def test_aft_conv_by_chunks_is_aft_conv_by_matrices(task, global_sum, kernel, chunk, monkeypatch):
    monkeypatch.setattr(AftConv, "CHUNK", chunk)
    mixer = tiny_model(task, "aft-conv", kernel=(kernel,), global_sum=global_sum,
                       reparameterised=kernel > 1).blocks[0].mixer
    k, v = torch.randn(2, 12, 2), torch.randn(2, 12, 8)
    want = mixers.exact_mean(k.repeat_interleave(4, 2), v, mixer.bias(12, ()).repeat_interleave(4, 0))
    torch.testing.assert_close(mixer.mean(k, v, (), None), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["factorised", "plain"])
@pytest.mark.parametrize("global_sum", [True, False])
def test_aft_local_by_chunks_is_aft_local_by_one_matrix(form, global_sum, monkeypatch):
    mixer = tiny_model("text-generation", "aft-local", window=3, global_sum=global_sum,
                       factorised=form == "factorised").blocks[0].mixer
    x = torch.randn(2, 12, 8)
    chunked = mixer(x)
    one = lambda k, v: (torch.exp(mixer.bias(12)) @ (mixers.shifted_exp(k) * v)) / (
        torch.exp(mixer.bias(12)) @ mixers.shifted_exp(k))
    calls = []
    monkeypatch.setattr(mixer, "chunked", lambda k, v: calls.append(1) or one(k, v))
    torch.testing.assert_close(chunked, mixer(x), atol=1e-5, rtol=1e-5)
    assert calls  # it had gone by chunks before


@pytest.mark.parametrize("mixer", ["aft-full", "aft-local", "aft-simple", "aft-conv"])
@pytest.mark.parametrize("task", ["text-generation", "text-classification"])
@pytest.mark.parametrize("least, most", [(3, 30), (80, 500), (1000, 10000)], ids=["float32", "float64", "one by one"])
def test_keys_of_any_size_are_summed_exactly(task, mixer, least, most, monkeypatch):
    """From some size on exp(k) leaves float32, then float64; what the largest key is not seen from would be 0 / 0."""
    module = tiny_model(task, mixer).blocks[0].mixer
    ways = []
    for name in ("exact_mean", "shifted_exp"):
        way = getattr(mixers, name)
        monkeypatch.setattr(mixers, name, lambda k, *more, way=way: ways.append((way.__name__, k.dtype))
                            or way(k, *more))
    with torch.no_grad():
        x = torch.randn(2, 12, 8)
        module.k.bias.zero_()
        keys = module.k(x)
        module.k.weight *= (least * most) ** 0.5 / (keys.amax() - keys.amin())
        keys = module.k(x)
        assert least < keys.amax() - keys.amin() < most
        got = module(x)
        w = torch.zeros(12, 12) if mixer == "aft-simple" else None
        if w is None:
            w = module.bias(12, ()) if mixer == "aft-conv" else module.bias(12)
        elif module.causal:
            w = w.masked_fill(~mixers.position_mask(12, True), -torch.inf)
        k = keys.double().repeat_interleave(8 // keys.shape[2], 2)
        w = w.double() if w.dim() == 2 else w.double().repeat_interleave(8 // keys.shape[2], 0)
        taken, ways[:] = list(ways), []
        y = mixers.exact_mean(k, module.v(x).double(), w)
        want = module.out(torch.sigmoid(module.q(x)) * y.float())
    assert set(taken) == {{3: ("shifted_exp", torch.float32), 80: ("shifted_exp", torch.float64),
                           1000: ("exact_mean", torch.float32)}[least]}
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task,mixer", [kind for kind in KINDS if kind[0].endswith("generation")])
def test_no_row_depends_on_what_comes_behind_it(task, mixer):
    model = tiny_model(task, mixer).double()
    x = torch.randint(0, 256, (1, 12))
    changed = x.clone()
    changed[0, 7] = (x[0, 7] + 1) % 256
    # With a start embedding row t is about element t: element 7 is first seen by row 8.
    first = 8 if task == "image-generation" else 7
    for learning in (True, False):
        with torch.set_grad_enabled(learning):
            a, b = model(x), model(changed)
        # Not equal: keys are shifted by the largest of all.
        torch.testing.assert_close(a[0, :first], b[0, :first], atol=1e-12, rtol=1e-12)
        assert not torch.allclose(a[0, first], b[0, first])


class Precisions(TorchDispatchMode):
    """Collects the floating point types of every tensor that is computed, single numbers aside."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor) and t.is_floating_point() and t.dim():
                self.seen.add(t.dtype)
        return out


@pytest.mark.parametrize("task,mixer", KINDS)
def test_float64_models_stay_in_float64(task, mixer):
    """The logits that an export keeps are computed so."""
    model = tiny_model(task, mixer).double()
    x = torch.randn(1, 3, 8, 8).double() if task.startswith("image-cl") else torch.randint(0, 256, (1, 12))
    with torch.no_grad(), Precisions() as precisions:
        model(x)
    assert precisions.seen == {torch.float64}


@pytest.mark.parametrize("task,mixer", KINDS)
def test_every_parameter_learns(task, mixer):
    model = tiny_model(task, mixer).train()
    x = torch.randn(2, 3, 8, 8) if task.startswith("image-cl") else torch.randint(0, 256, (2, 12))
    model(x).pow(2).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and torch.isfinite(p.grad).all(), name
        assert p.grad.abs().max() > 0 or name.endswith("k.bias"), name  # a bias of all keys shifts nothing


def test_windows_of_keys_far_below_the_largest_have_finite_gradients():
    """As one element of a picture stands out, whose window the others are not in."""
    mixer = tiny_model("text-generation", "aft-conv", heads=2, kernel=(3,), global_sum=False).blocks[0].mixer
    k, v = torch.zeros(1, 12, 2), torch.randn(1, 12, 8)
    k[0, 0] = 55.0
    k.requires_grad_(True)
    y = mixer.products(k, v, (), None)
    y.square().sum().backward()
    assert torch.isfinite(y).all() and torch.isfinite(k.grad).all() and k.grad[0, 5].abs().max() > 0


@pytest.mark.parametrize("task,mixer", KINDS)
def test_training_in_bf16_stays_close(task, mixer):
    """Products are rounded to 8 bits, keys and their exponentials are not: whole logits stay within a few percent."""
    model = tiny_model(task, mixer)
    x = torch.randn(2, 3, 8, 8) if task.startswith("image-cl") else torch.randint(0, 256, (2, 12))
    want = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(x)
    assert (got.float() - want).abs().max() < 0.05 * want.abs().max()


def test_shared_layers_are_one_block():
    shared = tiny_model("text-classification", "fastformer", share_layers=True, share_value_query=True)
    assert len(shared.blocks) == 1 and not hasattr(shared.blocks[0].mixer, "v")
    twice = tiny_model("text-classification", "fastformer", share_value_query=True)
    for block in twice.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    for name in ("norm", "head"):
        getattr(twice, name).load_state_dict(getattr(shared, name).state_dict())
    with torch.no_grad():
        twice.tok_embed.copy_(shared.tok_embed)
        twice.pos_embed.copy_(shared.pos_embed)
    x = torch.randint(0, 256, (1, 12))
    assert torch.equal(shared(x), twice(x))


# ---- position biases stay what the format allows ---------------------------------------------------------------------


def biases(mixer):
    """Every position bias that the format knows of, those that no sum meets too."""
    if isinstance(mixer, AftConv):
        return mixer.conv().detach()
    tokens = len(mixer.pos_bias if hasattr(mixer, "pos_bias") else mixer.pos_u)
    return mixer.learnt(slice(0, tokens), slice(0, tokens)).detach()


@pytest.mark.parametrize("kind", ["aft-full", "aft-local", "aft-conv"])
@pytest.mark.parametrize("factors", [True, False])
def test_biases_are_brought_back_and_others_left_alone(kind, factors):
    mixer = tiny_model(mixer=kind, factorised=factors, reparameterised=factors).blocks[0].mixer
    before = {name: p.clone() for name, p in mixer.named_parameters()}
    mixer_of = mixer.conv if kind == "aft-conv" else mixer
    mixer_of.confine()
    for name, p in mixer.named_parameters():
        assert torch.equal(p, before[name]), name
    with torch.no_grad():
        for p in mixer_of.parameters():
            p *= 1000.0
    assert biases(mixer).abs().max() > mixers.BIAS_MAX
    mixer_of.confine()
    assert 0.5 * mixers.BIAS_TRAINED < biases(mixer).abs().max() <= mixers.BIAS_TRAINED * (1 + 1e-5)


# ---- what is dropped in training -------------------------------------------------------------------------------------


def test_branches_are_dropped_the_deeper_the_more_and_the_others_made_up_for():
    model = tiny_model("text-classification", "aft-simple", depth=3)
    model.regularise(0.0, 0.4)
    model.train()
    ones = torch.ones(4000, 2, 8)
    for block, rate in zip(model.blocks, (0.0, 0.2, 0.4)):
        y = block.branch(ones)
        assert torch.equal(y, y[:, :1, :1].expand_as(y))  # a picture's branch is dropped whole
        kept = y[:, 0, 0]
        assert kept[kept != 0].tolist() == pytest.approx([1 / (1 - rate)] * int((kept != 0).sum()))
        assert abs((kept == 0).float().mean() - rate) < 0.03
        assert torch.equal(block.eval().branch(ones), ones)


def test_features_are_dropped_one_by_one():
    model = tiny_model("text-classification", "aft-simple", depth=1)
    model.regularise(0.25, 0.0)
    y = model.train().blocks[0].branch(torch.ones(100, 10, 8))
    assert abs((y == 0).float().mean() - 0.25) < 0.03 and y.max().item() == pytest.approx(1 / 0.75)


def test_a_kernel_of_one_tap_is_a_plain_one():
    mixer = tiny_model("text-generation", "aft-conv", kernel=(1,), reparameterised=False).blocks[0].mixer
    assert torch.isfinite(mixer(torch.randn(1, 12, 8))).all()


def test_a_classifier_keeps_its_head_for_its_own_labels_in_another_order():
    model = tiny_model("image-classification", "aft-conv")
    x, (cat, dog, ship) = torch.randn(1, 3, 8, 8), range(3)
    before = model(x)[0]
    model.relabel(["ship", "cat", "dog"])
    assert model.config.labels == ["ship", "cat", "dog"]
    torch.testing.assert_close(model(x)[0], before[[ship, cat, dog]])
    model.relabel(["one", "two"])
    assert model(x).shape == (1, 2)


# ---- kernels of one tap ----------------------------------------------------------------------------------------------


def test_a_head_learns_which_one_tap_counts():
    """Towards a kernel whose heads have a tap each: drawn while it learns, the likeliest when it does not."""
    torch.manual_seed(1)
    kernel, wanted = OneTapKernel(3, (3, 3)), torch.tensor([2, 4, 7])
    target = 0.8 * torch.nn.functional.one_hot(wanted, 9).view(3, 3, 3)
    assert (kernel() == 0).all()  # as AFT's kernels begin
    optimiser = torch.optim.Adam(kernel.parameters(), lr=0.05)
    for _ in range(500):
        optimiser.zero_grad()
        (kernel() - target).square().sum().backward()
        optimiser.step()
    settled = kernel.settled()
    assert settled().flatten(1).count_nonzero(1).tolist() == [1, 1, 1]
    assert settled().flatten(1).argmax(1).tolist() == wanted.tolist()
    assert torch.allclose(settled().flatten(1).amax(1), torch.tensor(0.8), atol=0.1)


def test_the_entropy_of_kernels_is_least_where_one_tap_counts():
    flat, one = torch.zeros(2, 3, 3), 50.0 * torch.eye(9)[:2].view(2, 3, 3)
    assert torch.allclose(kernel_entropy(flat), torch.tensor(9.0).log())
    assert kernel_entropy(one) < 1e-6


@pytest.mark.parametrize("rate, share", [(0.0, 0.0), (1e-9, 1 / 256), (0.1, 26 / 256), (0.999, 255 / 256)])
def test_dropped_elements_are_zero_and_the_mean_stays(rate, share):
    torch.manual_seed(1)
    x = torch.ones(1000, 1001, requires_grad=True)
    y = dropped(x, rate)
    y.sum().backward()
    assert (y == 0).double().mean().item() == pytest.approx(share, abs=2e-3)
    assert y.max().item() == pytest.approx(1 / (1 - share))
    assert torch.equal(x.grad, y)  # what is dropped learns nothing
