"""PyTorch twins of the token mixers: x [B, T, d] -> [B, T, d]. Parameters have the served tensors' names.

`grid` is (rows, columns) of a picture's patches, () for sequences; only aft-conv looks at it. `mask`, [B, T, 1] bool,
tells which tokens are there where texts of a batch differ in length; None: all. What comes of others means nothing.

AFT ("An Attention Free Transformer", Zhai et al. 2021), eq. 2:

    y[t] = sigmoid(q[t]) * sum_s exp(k[s] + w[t, s]) v[s] / sum_s exp(k[s] + w[t, s])

In training the sums are matrix products of exp(w) with exp(k - max k) v and exp(k - max k): every term is positive and
nothing is subtracted. Where keys and biases spread so far that float32 would lose the smaller terms, evaluation
takes the products in float64, and beyond its range the sums one by one (`exact_mean`).
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

BIAS_MAX = 60.0  # larger position biases are refused: exp(w) and its inverse stay ordinary float32 numbers
BIAS_TRAINED = 59.0  # training keeps them in this, so that rounding to bf16 does not carry one past BIAS_MAX
SPREAD_MAX = 40.0  # of keys plus biases, for which products of float32 exponentials keep 1e-6 or better
SPREAD_MAX_DOUBLE = 600.0  # and of float64 ones: e^-745 is their least


def wide(x):
    """x in float32 at least, for exponentials and quotients; autocast makes matrix products of it bf16 all the same."""
    return x if x.dtype == torch.float64 else x.float()


def position_mask(tokens, causal, device=None):
    """[T, T] bool: which positions s a query t may see."""
    every = torch.ones(tokens, tokens, dtype=torch.bool, device=device)
    return every.tril() if causal else every


def exact_mean(k, v, w):
    """sum_s softmax_s(k[s] + w[t, s]) v[s], row by row: slow, and right for keys and biases of any size.

    k, v: [B, T, d]; w: [T, S] or, a matrix per channel, [d, T, S]; minus infinity hides a position. -> [B, T, d].
    """
    rows = []
    for t in range(k.shape[1]):
        bias = w[t, :, None] if w.dim() == 2 else w[:, t].transpose(0, 1)
        rows.append((torch.softmax(k + bias, dim=1) * v).sum(1))
    return torch.stack(rows, dim=1)


def shifted_exp(k, mask=None):
    """exp(k - max over the tokens), so that the largest is 1; 0 for those that are not there. k: [B, T, d].

    No key counts as less than e^-60 of the largest: early rows of a causal sum would be 0 / 0. Sums with such a spread
    are a matter of training only; evaluation is in float64 long before.
    """
    floor = -SPREAD_MAX_DOUBLE if k.dtype == torch.float64 else -60.0
    e = torch.exp((k - hidden(k, mask, -math.inf).detach().amax(1, keepdim=True)).clamp(min=floor, max=0.0))
    return e if mask is None else e * mask


def hidden(x, mask, value):
    """x with `value` in place of tokens that are not there."""
    return x if mask is None else x.masked_fill(~mask, value)


def spread(k, w, mask):
    """Largest distance, in the exponent, between two terms that one sum may meet."""
    w = w[torch.isfinite(w)]
    k = k if mask is None else torch.where(mask, k, k[:, :1])
    return (k.amax(1) - k.amin(1)).max() + w.max() - w.min()


class Projections(nn.Module):
    """q, k, v and out of every mixer; `key_width` is d except for aft-conv, whose keys are one per head."""

    def __init__(self, dim, key_width=None, value=True, out=True):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, key_width or dim)
        if value:
            self.v = nn.Linear(dim, dim)
        if out:
            self.out = nn.Linear(dim, dim)


class AftPosition(Projections):
    """aft-full, aft-local and aft-simple: biases by pairs of positions."""

    def __init__(self, config, causal, tokens):
        m = config.mixer
        super().__init__(config.dim)
        self.kind, self.causal, self.gate, self.window = m.type, causal, m.query_gate, m.window
        self.global_sum = m.global_sum
        if m.type == "aft-simple":
            pass
        elif m.factorised:  # eq. 7; N(0, 1e-2) as the paper's section 4.1 says
            rank = min(m.rank, tokens)
            self.pos_u = nn.Parameter(torch.randn(tokens, rank) * 1e-2)
            self.pos_v = nn.Parameter(torch.randn(tokens, rank) * 1e-2)
        else:
            self.pos_bias = nn.Parameter(torch.zeros(tokens, tokens))

    def learnt(self, rows, columns):
        """Learnt biases w[rows, columns] (slices of positions); they broadcast over leading axes of both."""
        if self.kind == "aft-simple":
            return None
        if hasattr(self, "pos_bias"):
            return self.pos_bias[rows, columns]
        return self.pos_u[rows] @ self.pos_v[columns].T

    @torch.no_grad()
    def confine(self):
        """Keep every bias within BIAS_TRAINED, after a step of training. Of factors it bounds the norms of the rows.

        |u[t] . v[s]| <= |u[t]| |v[s]|: so bounded are the pairs that no sum meets too, which training says nothing of.
        """
        if hasattr(self, "pos_bias"):
            self.pos_bias.clamp_(-BIAS_TRAINED, BIAS_TRAINED)
        elif self.kind != "aft-simple":
            for rows in (self.pos_u, self.pos_v):
                rows *= (BIAS_TRAINED**0.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)

    def bias(self, tokens):
        """[T, T] biases as the sums see them: 0 or minus infinity outside the window, minus infinity for the future."""
        device = self.q.weight.device
        span = slice(0, tokens)
        w = self.learnt(span, span)
        if w is None:
            w = self.q.weight.new_zeros(tokens, tokens)
        if self.kind == "aft-local":
            at = torch.arange(tokens, device=device)
            near = (at[:, None] - at[None, :]).abs() < self.window
            w = torch.where(near, w, torch.tensor(0.0 if self.global_sum else -math.inf, device=device))
        return w.masked_fill(~position_mask(tokens, self.causal, device), -math.inf)

    def chunk_weights(self, tokens, size):
        """exp(w) of each chunk of `size` queries over the chunk before it and over itself, never as T x T.

        tokens: a multiple of size, at most the positions of the model. -> two of [T/size, size, size], the first
        for the chunk before (zeros for chunk 0).
        """
        device = self.q.weight.device
        queries = torch.arange(tokens, device=device).view(-1, size)
        weights = []
        for keys in (queries - size, queries):
            at = keys.clamp(min=0)
            if hasattr(self, "pos_bias"):
                w = self.pos_bias[queries[:, :, None], at[:, None, :]]
            else:
                w = self.pos_u[queries] @ self.pos_v[at].transpose(1, 2)
            distance = queries[:, :, None] - keys[:, None, :]
            outside = torch.tensor(1.0 if self.global_sum else 0.0, device=device)
            w = torch.where(distance < self.window, torch.exp(w), outside)
            weights.append(w.masked_fill((distance < 0) | (keys < 0)[:, None, :], 0.0))
        return weights

    def chunked(self, k, v):
        """Causal aft-local in O(T window): products over a chunk and the one before it, a running sum for the rest."""
        batch, tokens, dim = k.shape
        size = self.window
        e = shifted_exp(k)
        both = torch.cat([e * v, e], dim=-1).view(batch, tokens // size, size, 2 * dim)
        before, here = (w.to(e.dtype) for w in self.chunk_weights(tokens, size))
        sums = here @ both
        near = before[1:] @ both[:, :-1]
        if self.global_sum:
            near = near + F.pad(both[:, :-2].sum(2).cumsum(1), (0, 0, 1, 0))[:, :, None]
        sums = torch.cat([sums[:, :1], sums[:, 1:] + near], dim=1).view(batch, tokens, 2 * dim)
        return sums[..., :dim] / sums[..., dim:]

    def mean(self, k, v, mask):
        k, v = wide(k), wide(v)
        if not torch.is_grad_enabled():
            w = self.bias(k.shape[1])
            far = spread(k, w, mask)
            if far > SPREAD_MAX_DOUBLE:
                return hidden(exact_mean(hidden(k, mask, -math.inf), v, w), mask, 0.0)
            if far > SPREAD_MAX:
                return self.products(k.double(), v.double(), mask).to(v.dtype)
        return self.products(k, v, mask)

    def products(self, k, v, mask):
        """mean() by products of exponentials, in the precision of k and v."""
        tokens = k.shape[1]
        if self.kind == "aft-local" and self.causal and tokens >= 4 * self.window and tokens % self.window == 0:
            return self.chunked(k, v)
        e = shifted_exp(k, mask)
        if self.kind == "aft-simple":
            if self.causal:
                return (e * v).cumsum(1) / e.cumsum(1)
            return ((e * v).sum(1, keepdim=True) / e.sum(1, keepdim=True)).expand_as(v)
        w = torch.exp(self.bias(tokens)).to(e.dtype)
        return (w @ (e * v)) / hidden(w @ e, mask, 1.0)

    def forward(self, x, grid=(), mask=None):
        y = self.mean(self.k(x), self.v(x), mask)
        return self.out(torch.sigmoid(self.q(x)) * y if self.gate else y)


class ReparameterisedKernel(nn.Module):
    """Position biases of aft-conv: gain (r - mean r) / std r + bias per head (AFT eq. 8), gain and bias 0 at first."""

    def __init__(self, heads, kernel, reparameterised):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, *kernel) * (1.0 if reparameterised else 1e-2))
        if reparameterised:
            self.gain = nn.Parameter(torch.zeros(heads))
            self.bias = nn.Parameter(torch.zeros(heads))

    def forward(self):
        """[heads, *kernel]"""
        if not hasattr(self, "gain"):
            return self.weight
        flat = self.weight.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
        return (self.gain[:, None] * flat + self.bias[:, None]).view_as(self.weight)

    @torch.no_grad()
    def confine(self):
        """Keep every bias within BIAS_TRAINED, after a step of training."""
        if not hasattr(self, "gain"):
            self.weight.clamp_(-BIAS_TRAINED, BIAS_TRAINED)
            return
        largest = self().flatten(1).abs().amax(1)
        shrink = torch.where(largest > BIAS_TRAINED, BIAS_TRAINED / largest, 1.0)  # a kernel without spread has nan
        self.gain *= shrink
        self.bias *= shrink


class OneTapKernel(nn.Module):
    """Position biases of aft-conv with one tap a head, while they learn which (AFT's appendix: convolution becomes
    indexing). It is drawn by the straight-through Gumbel softmax (Jang et al. 2017) of the logits `weight`, and its
    bias is the head's gain, 0 at first. `settled` is the kernel that comes of it."""

    def __init__(self, heads, kernel):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, *kernel))
        self.gain = nn.Parameter(torch.zeros(heads))

    def forward(self):
        """[heads, *kernel]"""
        flat = self.weight.flatten(1)
        if self.training:
            chosen = F.gumbel_softmax(flat, hard=True)
        else:
            chosen = F.one_hot(flat.argmax(1), flat.shape[1])
        return (self.gain[:, None] * chosen).view_as(self.weight)

    @torch.no_grad()
    def confine(self):
        """As ReparameterisedKernel's."""
        self.gain.clamp_(-BIAS_TRAINED, BIAS_TRAINED)

    @torch.no_grad()
    def settled(self):
        """-> ReparameterisedKernel, of the taps as they are."""
        kernel = ReparameterisedKernel(len(self.gain), self.weight.shape[1:], reparameterised=False)
        kernel.weight.copy_(self.eval()())
        return kernel.to(self.gain.device)


def kernel_entropy(w):
    """Mean over the heads of the entropy of softmax(w) over their taps, in nats: what a term of the loss makes small
    for sparse kernels (AFT's appendix). w: [heads, *kernel]"""
    return torch.distributions.Categorical(logits=w.flatten(1)).entropy().mean()


class AftConv(Projections):
    """aft-conv, eq. 6: biases by relative position, a kernel and a key for each head."""

    DENSE_TOKENS = 256  # of a picture: up to here one T x T product a head is faster than a depthwise convolution
    CHUNK = 32  # elements of a sequence, at least, that share one product of their windows

    def __init__(self, config, causal, tokens):
        m = config.mixer
        super().__init__(config.dim, key_width=m.heads)
        self.heads, self.causal, self.gate, self.global_sum = m.heads, causal, m.query_gate, m.global_sum
        self.conv = ReparameterisedKernel(m.heads, m.kernel, m.reparameterised)

    def tap_of(self, tokens, grid, device):
        """[T, T]: which tap of the (flat) kernel joins query t and position s; -1 outside the window."""
        kernel = self.conv.weight.shape[1:]
        if grid:
            at = torch.arange(tokens, device=device)
            rows, columns = at // grid[1], at % grid[1]
            a = rows[None, :] - rows[:, None] + kernel[0] // 2
            b = columns[None, :] - columns[:, None] + kernel[1] // 2
            inside = (a >= 0) & (a < kernel[0]) & (b >= 0) & (b < kernel[1])
            return torch.where(inside, a * kernel[1] + b, -1)
        at = torch.arange(tokens, device=device)
        j = at[None, :] - at[:, None] + (kernel[0] - 1 if self.causal else kernel[0] // 2)
        inside = (j >= 0) & (j < kernel[0])
        return torch.where(inside, j, -1)

    def bias(self, tokens, grid):
        """[heads, T, T] biases: 0 or minus infinity outside the window, minus infinity for the future."""
        w = self.conv()
        tap = self.tap_of(tokens, grid, w.device)
        outside = w.new_full((w.shape[0], 1), 0.0 if self.global_sum else -math.inf)
        flat = torch.cat([w.flatten(1), outside], dim=1)
        w = flat[:, tap.where(tap >= 0, flat.shape[1] - 1)]
        return w.masked_fill(~position_mask(tokens, self.causal, w.device), -math.inf)

    def convolved(self, x, grid):
        """Sums of x [B, T, h, c] over a picture, weighted by exp(w), by depthwise convolution."""
        batch, tokens, heads, width = x.shape
        w = self.conv()
        w = torch.expm1(w) if self.global_sum else torch.exp(w)
        kh, kw = w.shape[1:]
        of_grid = x.permute(0, 2, 3, 1).reshape(batch, heads * width, *grid)
        of_grid = F.pad(of_grid, (kw // 2, kw - 1 - kw // 2, kh // 2, kh - 1 - kh // 2))
        near = F.conv2d(of_grid, w.repeat_interleave(width, 0)[:, None], groups=heads * width)
        sums = near.reshape(batch, heads, width, tokens).permute(0, 3, 1, 2)
        return sums + x.sum(1, keepdim=True) if self.global_sum else sums

    def banded(self, x):
        """Sums of x [B, T, h, c] over a sequence, weighted by exp(w): within the window by a product for each chunk,
        and beyond it as it is, where nothing is taken off again."""
        batch, tokens, heads, width = x.shape
        w = self.conv()[:, -tokens:] if self.causal else self.conv()
        taps = w.shape[1]
        left = taps - 1 if self.causal else taps // 2
        chunk = min(tokens, max(self.CHUNK, 1 << (left - 1).bit_length()))
        before, behind, chunks = -(-left // chunk), -(-(taps - 1 - left) // chunk), -(-tokens // chunk)
        x = x.permute(2, 0, 3, 1)  # [h, B, c, T]
        of_chunks = F.pad(x, (before * chunk, behind * chunk + -tokens % chunk))
        of_chunks = of_chunks.view(heads, batch, width, -1, chunk)
        near = torch.cat([of_chunks[..., i : i + chunks, :] for i in range(before + 1 + behind)], dim=4)
        # Row i of a chunk has the kernel from column i on: rows of one column more, of which each begins one later.
        reach, first = near.shape[4], before * chunk - left
        band = F.pad(torch.exp(w), (first, reach + 1 - first - taps)).repeat(1, chunk)[:, : chunk * reach]
        sums = near.view(heads, -1, reach) @ band.view(heads, chunk, reach).transpose(1, 2).to(x.dtype)
        sums = sums.view(heads, batch, width, -1)[..., :tokens].to(x.dtype)
        if self.global_sum and tokens > left + 1:
            sums = sums + F.pad(x.cumsum(3)[..., : -left - 1], (left + 1, 0))
        after = taps - left  # of what follows
        if self.global_sum and not self.causal and tokens > after:
            sums = sums + F.pad(x.flip(3).cumsum(3).flip(3)[..., after:], (0, after))
        return sums.permute(1, 3, 0, 2)

    def mean(self, k, v, grid, mask):
        k, v = wide(k), wide(v)
        if not torch.is_grad_enabled():
            w = self.conv().flatten()
            far = spread(k, torch.cat([w, w.new_zeros(1)]) if self.global_sum else w, mask)
            if far > SPREAD_MAX_DOUBLE:
                w, width, k = self.bias(k.shape[1], grid), v.shape[2] // self.heads, hidden(k, mask, -math.inf)
                y = exact_mean(k.repeat_interleave(width, 2), v, w.repeat_interleave(width, 0))
                return hidden(y, mask, 0.0)
            if far > SPREAD_MAX:
                return self.products(k.double(), v.double(), grid, mask).to(v.dtype)
        return self.products(k, v, grid, mask)

    def products(self, k, v, grid, mask):
        """mean() by products of exponentials, in the precision of k and v."""
        batch, tokens, dim = v.shape
        e = shifted_exp(k, mask)
        v = v.view(batch, tokens, self.heads, -1)
        e = e[..., None]
        both = torch.cat([e * v, e], dim=-1)
        if not grid:
            sums = self.banded(both)
        elif tokens <= self.DENSE_TOKENS or not torch.is_grad_enabled():
            # One product a head over all pictures: [T, T] by [T, B (c + 1)], wide enough to be fast.
            rows = both.permute(2, 1, 0, 3)
            sums = torch.exp(self.bias(tokens, grid)).to(e.dtype) @ rows.flatten(2)
            sums = sums.view(rows.shape).permute(2, 1, 0, 3)
        else:
            sums = self.convolved(both, grid)
        # Where no token is within the window of one that is not there, there is nothing to divide by.
        weights = hidden(sums[..., -1:], None if mask is None else mask[..., None], 1.0)
        # Divided, not multiplied by 1 / weights: the gradient of that, 1 / weights^2, overflows from e^-44 on.
        return (sums[..., :-1] / weights).reshape(batch, tokens, dim)

    def forward(self, x, grid=(), mask=None):
        y = self.mean(self.k(x), self.v(x), grid, mask)
        return self.out(torch.sigmoid(self.q(x)) * y if self.gate else y)


class Headed(Projections):
    """What the mixers with heads of q, k and v share."""

    def __init__(self, config, causal, tokens, **projections):
        super().__init__(config.dim, **projections)
        self.heads, self.causal = config.mixer.heads, causal

    def split(self, x):
        """[B, T, d] -> [B, h, T, d/h]"""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    @staticmethod
    def join(x):
        """[B, h, T, d/h] -> [B, T, d]"""
        return x.transpose(1, 2).flatten(2)


class Attention(Headed):
    """softmax(q k^T / sqrt(d/h)) v, the baseline."""

    def forward(self, x, grid=(), mask=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        seen = None if mask is None else mask.transpose(1, 2)[:, None]  # by all queries: [B, 1, 1, T]
        return self.out(self.join(F.scaled_dot_product_attention(q, k, v, seen, is_causal=self.causal)))


class SimA(Headed):
    """SimA (Koohpayegani & Pirsiavash 2022): q and k divided by each channel's l1 norm over the tokens, no softmax.

    Or, in the paper's ablations, by its l2 norm or by none.
    """

    ORDERS = {"l1": 1, "l2": 2}

    def __init__(self, config, causal, tokens):
        super().__init__(config, causal, tokens)
        self.order = self.ORDERS.get(config.mixer.norm)

    def normed(self, x):
        return x if self.order is None else F.normalize(x, p=self.order, dim=1, eps=1e-12)

    def forward(self, x, grid=(), mask=None):
        q, k = (self.split(self.normed(hidden(wide(f(x)), mask, 0.0))) for f in (self.q, self.k))
        v = self.split(wide(self.v(x)))
        tokens, width = v.shape[2:]
        y = (q @ k.transpose(2, 3)) @ v if tokens < width else q @ (k.transpose(2, 3) @ v)
        return self.out(self.join(y))


class SimpleAttention(Headed):
    """Simpletron's attention: q k^T v / sqrt(T), or without that factor, and without an output projection."""

    def __init__(self, config, causal, tokens):
        super().__init__(config, causal, tokens, out=False)
        self.scale = config.mixer.scale

    def forward(self, x, grid=(), mask=None):
        q, k, v = (self.split(wide(f(x))) for f in (self.q, self.k, self.v))
        y = self.join(q @ (hidden(k, None if mask is None else mask[:, None], 0.0).transpose(2, 3) @ v))
        if not self.scale:
            return y
        return y / (math.sqrt(x.shape[1]) if mask is None else mask.sum(1, keepdim=True).sqrt())


class Fastformer(Headed):
    """Fastformer's additive attention (Wu et al. 2021, eq. 3 to 7); the query is added to the output."""

    def __init__(self, config, causal, tokens):
        super().__init__(config, causal, tokens, value=not config.mixer.share_value_query)
        width = config.dim // self.heads
        self.query_score = nn.Parameter(torch.randn(self.heads, width) * 0.02)
        self.key_score = nn.Parameter(torch.randn(self.heads, width) * 0.02)

    @staticmethod
    def pooled(x, score, mask):
        """Mean over the tokens weighted by softmax(x . score / sqrt(d/h)). x: [B, h, T, c] -> [B, h, 1, c]"""
        weights = (x * score[:, None]).sum(-1, keepdim=True) / math.sqrt(x.shape[-1])
        alpha = torch.softmax(hidden(weights, None if mask is None else mask[:, None], -math.inf), dim=2)
        return (alpha * x).sum(2, keepdim=True)

    def forward(self, x, grid=(), mask=None):
        q, k = (self.split(wide(f(x))) for f in (self.q, self.k))
        v = self.split(wide(self.v(x))) if hasattr(self, "v") else q
        key = self.pooled(self.pooled(q, self.query_score, mask) * k, self.key_score, mask)
        return self.out(self.join(key * v)) + self.join(q)


def build(config):
    """The mixer module of one block of a ModelConfig."""
    kind = config.mixer.type
    if kind in ("aft-full", "aft-local", "aft-simple"):
        return AftPosition(config, config.causal, config.tokens)
    module = {"aft-conv": AftConv, "attention": Attention, "sima": SimA,
              "simple-attention": SimpleAttention, "fastformer": Fastformer}[kind]
    return module(config, config.causal, config.tokens)
