"""Float64 oracle of every model the daemon serves, straight from the papers' equations.

It is slow on purpose: explicit T x T sums, no factoring of exp(K + w), no recurrence, no batching.
Whatever the engine computes must agree with it. Needs only numpy (Pillow for images).

    python3 oracle.py MODEL_DIR text  "some prompt"      # logits of the last position, top 5
    python3 oracle.py MODEL_DIR image picture.jpg        # class probabilities, top 5
    python3 oracle.py MODEL_DIR score file.txt           # bits per byte over the file

The model directory's layout is described in weights/FORMAT.md.
"""
import json
import math
import struct
import sys

import numpy as np

BIAS_MAX = 60.0  # exp(w) and its inverse stay ordinary float32 numbers
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U8": "u1", "I32": "<i4", "I64": "<i8"}


def read_safetensors(path):
    """Every tensor of the file as a float64 (or integer) array, by name."""
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + n])
    out = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        a, b = (8 + n + x for x in info["data_offsets"])
        if info["dtype"] == "BF16":
            bits = np.frombuffer(raw[a:b], "<u2").astype(np.uint32) << 16
            t = bits.view(np.float32)
        else:
            t = np.frombuffer(raw[a:b], DTYPES[info["dtype"]])
        t = t.reshape(info["shape"])
        out[name] = t.astype(np.float64) if t.dtype.kind == "f" else t
    return out


def write_safetensors(path, tensors, metadata=None):
    """Write arrays as F32 (floats) or their integer type; offsets are 8-byte aligned and gap-free."""
    header, blobs, at = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, t in tensors.items():
        t = np.ascontiguousarray(t)
        if t.dtype.kind == "f" and t.dtype != np.float64:
            t = t.astype("<f4")
        kind = {np.dtype("<f4"): "F32", np.dtype("<f8"): "F64", np.dtype("u1"): "U8", np.dtype("<i4"): "I32",
                np.dtype("<i8"): "I64"}[t.dtype]
        blob = t.tobytes()
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- pieces -------------------------------------------------------------------------------------

erf = np.vectorize(math.erf)
sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))


def layer_norm(x, p, name, eps):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / np.sqrt(v + eps) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def activation(x, kind):
    if kind == "gelu":
        return 0.5 * x * (1 + erf(x / math.sqrt(2)))
    if kind == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if kind == "relu":
        return np.maximum(x, 0)
    raise ValueError(kind)


def weighted_mean(k, v, w):
    """sum_s exp(k[s]+w[t,s]) v[s] / sum_s exp(k[s]+w[t,s]) for one channel: k, v (S,), w (T,S)."""
    a = k[None, :] + w
    a = np.exp(a - a.max(1, keepdims=True))
    return (a @ v) / a.sum(1)


def aft(q, k, v, bias, heads, gate):
    """AFT, eq. (2): q, v (T,d), k (T,heads), bias(head) -> (T,T) position biases, -inf where masked."""
    T, d = v.shape
    per = d // heads
    y = np.empty((T, d))
    for h in range(heads):
        w = bias(h)
        for c in range(h * per, (h + 1) * per):
            y[:, c] = weighted_mean(k[:, h], v[:, c], w)
    return sigmoid(q) * y if gate else y


def reparameterised(p, name):
    """Eq. (8): per head, gain * (r - mean) / std + bias, with the sample standard deviation (n - 1)."""
    r = p[name + ".weight"]
    if name + ".gain" in p:
        flat = r.reshape(len(r), -1)
        flat = (flat - flat.mean(1, keepdims=True)) / flat.std(1, ddof=1, keepdims=True)
        r = (p[name + ".gain"][:, None] * flat + p[name + ".bias"][:, None]).reshape(r.shape)
    if np.abs(r).max() > BIAS_MAX:
        raise ValueError("a position bias lies outside +-60")
    return r


# ---- token mixers -------------------------------------------------------------------------------


def position_bias(p, name, T, cfg, causal):
    """(T,T) biases of AFT-full / AFT-local: factorised u v^T (eq. 7) or a plain matrix, cut to the window."""
    if name + ".pos_u" in p:
        w = p[name + ".pos_u"][:T] @ p[name + ".pos_v"][:T].T
    elif name + ".pos_bias" in p:
        w = p[name + ".pos_bias"][:T, :T].copy()
    elif cfg["type"] == "aft-simple" or cfg["window"] == 0:
        w = np.zeros((T, T))
    else:
        raise ValueError(name + " has neither pos_u, pos_v nor pos_bias")
    if np.abs(w).max() > BIAS_MAX:
        raise ValueError("a position bias lies outside +-60")
    i = np.arange(T)
    dist = i[:, None] - i[None, :]
    if cfg["type"] == "aft-local":
        near = np.abs(dist) < cfg["window"]
        w = np.where(near, w, 0.0 if cfg.get("global", True) else -np.inf)
    if causal:
        w = np.where(dist >= 0, w, -np.inf)
    return w


def conv_bias_1d(r, T, causal, glob):
    """(T,T) biases from K taps: tap j holds position t + j - K//2, or t + j - (K-1) when causal."""
    K = len(r)
    w = np.full((T, T), 0.0 if glob else -np.inf)
    for t in range(T):
        for j in range(K):
            s = t + j - ((K - 1) if causal else K // 2)
            if 0 <= s < T:
                w[t, s] = r[j]
        if causal:
            w[t, t + 1 :] = -np.inf
    return w


def conv_bias_2d(r, H, W, glob):
    """(H*W,H*W) biases from a (kh,kw) window centred on the query position."""
    kh, kw = r.shape
    w = np.full((H * W, H * W), 0.0 if glob else -np.inf)
    for y in range(H):
        for x in range(W):
            for a in range(kh):
                for b in range(kw):
                    yy, xx = y + a - kh // 2, x + b - kw // 2
                    if 0 <= yy < H and 0 <= xx < W:
                        w[y * W + x, yy * W + xx] = r[a, b]
    return w


def split(x, heads):
    T, d = x.shape
    return x.reshape(T, heads, d // heads).transpose(1, 0, 2)


def join(x):
    h, T, c = x.shape
    return x.transpose(1, 0, 2).reshape(T, h * c)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def mixer(x, p, name, cfg, grid, causal):
    """One token mixer on x (T,d). grid is (H,W) for images, None for sequences."""
    kind, (T, d) = cfg["type"], x.shape
    if causal and kind in ("sima", "simple-attention", "fastformer"):
        raise ValueError(kind + " has no causal form")
    q = linear(x, p, name + ".q")
    k = linear(x, p, name + ".k")
    v = linear(x, p, name + ".v") if name + ".v.weight" in p else q  # Fastformer may share query and value
    gate, glob = cfg.get("query_gate", True), cfg.get("global", True)

    if kind in ("aft-full", "aft-local", "aft-simple"):
        w = position_bias(p, name, T, cfg, causal)
        y = aft(q, k, v, lambda h: w, d, gate)
    elif kind == "aft-conv":
        r = reparameterised(p, name + ".conv")
        if grid:
            bias = lambda h: conv_bias_2d(r[h], *grid, glob)
        else:
            bias = lambda h: conv_bias_1d(r[h], T, causal, glob)
        y = aft(q, k, v, bias, cfg["heads"], gate)
    elif kind == "attention":
        q, k, v = (split(a, cfg["heads"]) for a in (q, k, v))
        s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if causal:
            s = np.where(np.tril(np.ones((T, T), bool)), s, -np.inf)
        y = join(softmax(s, -1) @ v)
    elif kind == "sima":  # norm of each channel over the tokens, then q (k^T v)
        order = {"l1": 1, "l2": 2, "none": None}[cfg.get("norm", "l1")]
        if order:
            q, k = (a / np.maximum(np.linalg.norm(a, order, axis=0, keepdims=True), 1e-12) for a in (q, k))
        q, k, v = (split(a, cfg["heads"]) for a in (q, k, v))
        y = join(q @ (k.transpose(0, 2, 1) @ v))
    elif kind == "simple-attention":  # Simpletron: (1/sqrt(L)) q k^T v, no output projection
        q, k, v = (split(a, cfg["heads"]) for a in (q, k, v))
        return join(q @ (k.transpose(0, 2, 1) @ v)) / (math.sqrt(T) if cfg.get("scale", True) else 1)
    elif kind == "fastformer":
        q, k, v = (split(a, cfg["heads"]) for a in (q, k, v))
        c = q.shape[-1]
        alpha = softmax(np.einsum("htc,hc->ht", q, p[name + ".query_score"]) / math.sqrt(c), 1)
        gq = np.einsum("ht,htc->hc", alpha, q)
        pk = gq[:, None, :] * k
        beta = softmax(np.einsum("htc,hc->ht", pk, p[name + ".key_score"]) / math.sqrt(c), 1)
        gk = np.einsum("ht,htc->hc", beta, pk)
        return linear(join(gk[:, None, :] * v), p, name + ".out") + join(q)
    else:
        raise ValueError(kind)
    return linear(y, p, name + ".out")


# ---- models -------------------------------------------------------------------------------------


class Model:
    def __init__(self, folder):
        self.cfg = json.load(open(folder + "/config.json"))
        self.p = read_safetensors(folder + "/model.safetensors")

    def blocks(self, x, grid=None, causal=False):
        c, p = self.cfg, self.p
        for i in range(c["depth"]):
            n = "blocks.0" if c.get("share_layers") else f"blocks.{i}"
            eps = c.get("norm_eps", 1e-5)
            x = x + mixer(layer_norm(x, p, n + ".norm1", eps), p, n + ".mixer", c["mixer"], grid, causal)
            h = linear(layer_norm(x, p, n + ".norm2", eps), p, n + ".mlp.fc1")
            x = x + linear(activation(h, c.get("activation", "gelu")), p, n + ".mlp.fc2")
        return layer_norm(x, p, "norm", c.get("norm_eps", 1e-5))

    def pooled(self, x):
        if self.cfg.get("pooling") == "attention":  # Fastformer, eq. 3 and 4
            return softmax(x @ self.p["pool_score"] / math.sqrt(x.shape[1]), 0) @ x
        return x[0] if self.cfg.get("pooling", "mean") == "class-token" else x.mean(0)

    def image_embedding(self, pixels):
        """pixels (H,W,C) in 0..255, already of the size to classify -> what the head is given (d,)."""
        c, p = self.cfg, self.p
        i = c["input"]
        x = (np.asarray(pixels, np.float64) / 255 - np.array(i["mean"])) / np.array(i["std"])
        w = p["patch_embed.weight"]
        ph, pw = w.shape[2:]
        H, W = x.shape[0] // ph, x.shape[1] // pw
        patches = x[: H * ph, : W * pw].reshape(H, ph, W, pw, -1).transpose(0, 2, 4, 1, 3).reshape(H * W, -1)
        x = patches @ w.reshape(len(w), -1).T + p["patch_embed.bias"]
        if ("cls_token" in p) != (c.get("pooling") == "class-token"):
            raise ValueError("cls_token goes with class-token pooling")
        if "cls_token" in p:
            x = np.concatenate([p["cls_token"][None], x])
        if "pos_embed" in p:
            x = x + p["pos_embed"]
        return self.pooled(self.blocks(x, grid=None if "cls_token" in p else (H, W)))

    def image_logits(self, pixels):
        """The same pixels -> logits (classes,)."""
        return linear(self.image_embedding(pixels), self.p, "head")

    def sequence(self, ids, causal):
        p = self.p
        ids = np.asarray(ids)
        if causal and "start_embed" in p:
            x = p["start_embed"][None]
            if len(ids):
                x = np.concatenate([x, p["tok_embed"][ids[:-1]]])
        else:
            x = p["tok_embed"][ids]
        if "cls_token" in p:
            x = np.concatenate([p["cls_token"][None], x])
        if "pos_embed" in p:
            x = x + p["pos_embed"][: len(x)]
        return self.blocks(x, causal=causal)

    def lm_logits(self, ids):
        """ids (T,) -> logits (T,V). Without start_embed row t predicts ids[t+1]; with it row t predicts ids[t]."""
        return linear(self.sequence(ids, True), self.p, "head")

    def lm_embedding(self, ids):
        """ids (T,) -> mean (d,) over what is there once each of them was seen: a start embedding is none of them."""
        start = "start_embed" in self.p
        return self.sequence(np.append(ids, 0) if start else ids, True)[1 if start else 0 :].mean(0)

    def text_embedding(self, ids):
        """ids (T,) -> what the head of a (non-causal) text classifier is given (d,)."""
        return self.pooled(self.sequence(ids, False))

    def text_logits(self, ids):
        """ids (T,) -> class logits of a (non-causal) text classifier."""
        return linear(self.text_embedding(ids), self.p, "head")

    def bits_per_byte(self, data):
        """Mean -log2 p over data in windows of `context` elements, each window scored from scratch.

        With start_embed every element is scored and windows do not overlap; without it the first element of
        the data is not scored and each window begins with the last element of the one before.
        """
        T, total, n = self.cfg["input"]["context"], 0.0, 0
        ids = np.frombuffer(data, np.uint8)
        start = "start_embed" in self.p
        for a in range(0, len(ids) if start else len(ids) - 1, T):
            x = ids[a : a + T] if start else ids[a : a + T + 1]
            z = self.lm_logits(x if start else x[:-1])
            want = x if start else x[1:]
            z = z - z.max(1, keepdims=True)
            lp = z - np.log(np.exp(z).sum(1, keepdims=True))
            total -= lp[np.arange(len(want)), want].sum()
            n += len(want)
        return total / n / math.log(2)


def prepare(image, cfg):
    """Pillow's preprocessing: orientation, RGB, shorter side to resize_to, centre crop to size -> (H,W,3) uint8."""
    from PIL import Image, ImageOps

    i = cfg["input"]
    im = ImageOps.exif_transpose(image).convert("RGB")
    H, W = i["size"]
    short = i.get("resize_to", min(H, W))
    how = {"bicubic": Image.BICUBIC, "bilinear": Image.BILINEAR}[i.get("interpolation", "bicubic")]
    w, h = im.size
    if min(w, h) != short:
        if w <= h:
            w, h = short, max(1, int(short * h / w))
        else:
            w, h = max(1, int(short * w / h)), short
        im = im.resize((w, h), how)
    left, top = int(round((w - W) / 2.0)), int(round((h - H) / 2.0))
    return np.asarray(im.crop((left, top, left + W, top + H)))


if __name__ == "__main__":
    folder, what, arg = sys.argv[1:4]
    m = Model(folder)
    if what == "image":
        from PIL import Image

        z = m.image_logits(prepare(Image.open(arg), m.cfg))
        pr = softmax(z, 0)
        for j in np.argsort(-pr)[:5]:
            print(f"{pr[j]:.4f} {m.cfg['labels'][j]}")
    elif what == "text":
        z = m.lm_logits(np.frombuffer(arg.encode(), np.uint8))[-1]
        pr = softmax(z, 0)
        for j in np.argsort(-pr)[:5]:
            print(f"{pr[j]:.4f} {bytes([j])!r}")
    elif what == "score":
        print(f"{m.bits_per_byte(open(arg, 'rb').read()):.4f} bits per byte")
