"""The twins' models as one would serve them from another runtime: the same weights and logits, none of the training.

- Pictures: AFT-conv with q, k and v as one product, its sums as two depthwise convolutions, in PyTorch.
- picture_graph: the same as an ONNX graph, written op by op.
- Recurrent: AFT-local one byte at a time, a whole batch of streams in step.

They take every liberty that their place allows: sums as "all plus window times (exp(w) - 1)", and keys of a stream that
stay so small that exp(k) needs no reference. aftd takes neither.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

OPSET = 20  # the first with Gelu


def copied(*tensors):
    """Tensors end to end in a new one, without a gradient."""
    return torch.cat([t.detach() for t in tensors]).clone()


def with_bias(linear):
    return linear.bias if linear.bias is not None else linear.weight.new_zeros(linear.weight.shape[0])


class BlockWeights(nn.Module):
    """What a block computes with, as buffers: q, k and v in one."""

    def __init__(self, block):
        super().__init__()
        x = block.mixer
        if not (x.gate and x.global_sum):
            raise ValueError("no query gate, or no global sum: not among what is compared")
        self.eps = block.norm1.eps
        self.widths = [x.q.weight.shape[0], x.k.weight.shape[0], x.v.weight.shape[0]]
        qkv = (x.q, x.k, x.v)
        for name, weight, bias in (
                ("norm1", block.norm1.weight, block.norm1.bias), ("norm2", block.norm2.weight, block.norm2.bias),
                ("qkv", copied(*(m.weight for m in qkv)), copied(*(with_bias(m) for m in qkv))),
                ("out", x.out.weight, with_bias(x.out)), ("fc1", block.mlp.fc1.weight, with_bias(block.mlp.fc1)),
                ("fc2", block.mlp.fc2.weight, with_bias(block.mlp.fc2))):
            self.register_buffer(name + "_w", weight.detach().clone())
            self.register_buffer(name + "_b", bias.detach().clone())

    def norm(self, x, w, b):
        return F.layer_norm(x, w.shape, w, b, self.eps)

    def project(self, x):
        """x -> q, k, v of its norm"""
        return F.linear(self.norm(x, self.norm1_w, self.norm1_b), self.qkv_w, self.qkv_b).split(self.widths, dim=-1)

    def finish(self, x, y):
        """x and what is mixed -> the block's output"""
        x = x + F.linear(y, self.out_w, self.out_b)
        h = F.gelu(F.linear(self.norm(x, self.norm2_w, self.norm2_b), self.fc1_w, self.fc1_b))
        return x + F.linear(h, self.fc2_w, self.fc2_b)


# ---- pictures ----------------------------------------------------------------------------------------------------


class PictureBlock(BlockWeights):
    def __init__(self, block):
        super().__init__(block)
        w = torch.expm1(block.mixer.conv().detach().double()).float()[:, None]  # [heads, 1, kh, kw]
        width = self.widths[2] // self.widths[1]
        self.register_buffer("near", w)
        self.register_buffer("near_wide", w.repeat_interleave(width, 0))
        self.padding = [(side - 1) // 2 for side in w.shape[2:]]

    def sums(self, x, w, grid):
        """x: [B, T, c]; every token plus those in the window again, exp(w) - 1 times. The memory is channels-last."""
        picture = x.unflatten(1, grid).permute(0, 3, 1, 2)
        near = F.conv2d(picture, w, padding=self.padding, groups=w.shape[0])
        return near.permute(0, 2, 3, 1).flatten(1, 2) + x.sum(1, keepdim=True)

    def forward(self, x, grid):
        q, k, v = self.project(x)
        e = torch.exp(k - k.amax(1, keepdim=True))
        wide = e if e.shape == v.shape else e.repeat_interleave(v.shape[2] // e.shape[2], 2)
        top, bottom = self.sums(wide * v, self.near_wide, grid), self.sums(e, self.near, grid)
        if bottom.shape != top.shape:
            bottom = bottom.repeat_interleave(top.shape[2] // bottom.shape[2], 2)
        return self.finish(x, torch.sigmoid(q) * (top / bottom))


class Pictures(nn.Module):
    """An AFT-conv classifier of pictures, kernels of odd sides: [B, 3, H, W], normalised -> logits [B, classes]."""

    def __init__(self, model):
        super().__init__()
        c = model.config
        if c.mixer.type != "aft-conv" or c.activation != "gelu" or not all(side % 2 for side in c.mixer.kernel):
            raise ValueError("expected aft-conv, kernels of odd sides and gelu")
        self.grid, self.eps = c.grid, c.norm_eps
        self.register_buffer("patch_w", model.patch_embed.weight.detach().clone())
        self.register_buffer("patch_b", with_bias(model.patch_embed).detach().clone())
        at = model.pos_embed if hasattr(model, "pos_embed") else torch.zeros(c.tokens, c.dim)
        self.register_buffer("positions", at.detach().clone())
        self.blocks = nn.ModuleList(PictureBlock(model.blocks[0 if c.share_layers else i]) for i in range(c.depth))
        for name, tensor in (("norm_w", model.norm.weight), ("norm_b", model.norm.bias),
                             ("head_w", model.head.weight), ("head_b", with_bias(model.head))):
            self.register_buffer(name, tensor.detach().clone())

    def forward(self, pictures):
        x = F.conv2d(pictures, self.patch_w, self.patch_b, stride=self.patch_w.shape[2:])
        x = x.flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, self.grid)
        x = F.layer_norm(x, self.norm_w.shape, self.norm_w, self.norm_b, self.eps)
        return F.linear(x.mean(1), self.head_w, self.head_b)


class Graph:
    """An ONNX graph under construction: constants by value, ops by name."""

    def __init__(self):
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper, self.nodes, self.constants = helper, numpy_helper, [], []

    def constant(self, value):
        value = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        """Names of values, and constants as tensors or arrays -> the name of the result, or a list of names"""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = [f"value_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(self.helper.make_node(kind, names, out, **attributes))
        return out[0] if outputs == 1 else out

    def linear(self, x, weight, bias):
        return self.op("Add", self.op("MatMul", x, weight.T.contiguous()), bias)

    def norm(self, x, weight, bias, eps):
        return self.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=eps)

    def model(self, inputs, output):
        """inputs: {name: shape}, float32; output: (name, shape)"""
        info = lambda name, shape: self.helper.make_tensor_value_info(name, 1, shape)
        self.nodes.append(self.helper.make_node("Identity", [output[0]], ["logits"]))
        graph = self.helper.make_graph(self.nodes, "aft", [info(*i) for i in inputs.items()],
                                       [info("logits", output[1])], self.constants)
        return self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", OPSET)], ir_version=9)


def graph_sums(g, x, w, padding, shapes):
    """As PictureBlock.sums, of x [B, c, T] as rows of channels, which is how ONNX lays pictures out."""
    picture = g.op("Reshape", x, np.array(shapes[0]))
    near = g.op("Conv", picture, w, group=w.shape[0], kernel_shape=w.shape[2:], pads=[*padding, *padding])
    every = g.op("ReduceSum", picture, np.array([2, 3]), keepdims=1)
    return g.op("Add", near, every)


def picture_graph(pictures):
    """Pictures -> an ONNX model: pictures [batch, 3, H, W] -> logits [batch, classes]."""
    g, (rows, columns) = Graph(), pictures.grid
    patch = pictures.patch_w.shape
    x = g.op("Conv", "pictures", pictures.patch_w, pictures.patch_b, strides=patch[2:], kernel_shape=patch[2:])
    x = g.op("Transpose", g.op("Reshape", x, np.array([0, 0, -1])), perm=[0, 2, 1])
    x = g.op("Add", x, pictures.positions)
    for b in pictures.blocks:
        d, heads = b.widths[0], b.widths[1]
        qkv = g.linear(g.norm(x, b.norm1_w, b.norm1_b, b.eps), b.qkv_w, b.qkv_b)
        q, k, v = g.op("Split", qkv, np.array(b.widths), outputs=3, axis=-1)
        k, v = (g.op("Transpose", y, perm=[0, 2, 1]) for y in (k, v))
        e = g.op("Exp", g.op("Sub", k, g.op("ReduceMax", k, np.array([2]), keepdims=1)))
        if heads == d:
            top = graph_sums(g, g.op("Mul", e, v), b.near_wide, b.padding, ([0, d, rows, columns],))
            mean = g.op("Div", top, graph_sums(g, e, b.near, b.padding, ([0, d, rows, columns],)))
        else:
            v = g.op("Reshape", v, np.array([0, heads, d // heads, rows * columns]))
            ev = g.op("Mul", v, g.op("Unsqueeze", e, np.array([2])))
            top = graph_sums(g, ev, b.near_wide, b.padding, ([0, d, rows, columns],))
            bottom = graph_sums(g, e, b.near, b.padding, ([0, heads, rows, columns],))
            top = g.op("Reshape", top, np.array([0, heads, d // heads, rows * columns]))
            mean = g.op("Div", top, g.op("Reshape", bottom, np.array([0, heads, 1, rows * columns])))
        mean = g.op("Transpose", g.op("Reshape", mean, np.array([0, d, rows * columns])), perm=[0, 2, 1])
        x = g.op("Add", x, g.linear(g.op("Mul", g.op("Sigmoid", q), mean), b.out_w, b.out_b))
        h = g.op("Gelu", g.linear(g.norm(x, b.norm2_w, b.norm2_b, b.eps), b.fc1_w, b.fc1_b))
        x = g.op("Add", x, g.linear(h, b.fc2_w, b.fc2_b))
    x = g.norm(x, pictures.norm_w, pictures.norm_b, pictures.eps)
    x = g.op("ReduceMean", x, np.array([1]), keepdims=0)
    logits = g.linear(x, pictures.head_w, pictures.head_b)
    size = [rows * patch[2], columns * patch[3]]
    return g.model({"pictures": ["batch", 3, *size]}, (logits, ["batch", pictures.head_w.shape[0]]))


# ---- streams -----------------------------------------------------------------------------------------------------


class StreamBlock(BlockWeights):
    def __init__(self, block, tokens):
        super().__init__(block)
        x = block.mixer
        # exp(w) of each position over the ring's slots, where position s is in slot s % window.
        self.window, t = x.window, torch.arange(tokens)[:, None]
        back = (t - torch.arange(x.window)[None, :]) % x.window
        s = t - back
        with torch.no_grad():
            every = x.learnt(slice(0, tokens), slice(0, tokens))
            near = torch.exp(every[t, s.clamp(min=0)]).masked_fill(s < 0, 0.0)
        self.register_buffer("near", near)

    def forward(self, x, at, slot, total, ring):
        """x: [B, d]; at, slot: [1]; total: [B, 2 d], sums of what left the window; ring: [window, B, 2 d]"""
        q, k, v = self.project(x)
        e = torch.exp(k)
        total += ring.index_select(0, slot)[0]
        ring.index_copy_(0, slot, torch.cat([e * v, e], dim=-1)[None])
        sums = total + (self.near.index_select(0, at) @ ring.flatten(1)).view_as(total)
        top, bottom = sums.chunk(2, dim=-1)
        return self.finish(x, torch.sigmoid(q) * (top / bottom))


class Recurrent(nn.Module):
    """A generator of bytes with AFT-local, a byte of each stream a step; all streams are at the same position."""

    def __init__(self, model):
        super().__init__()
        c = model.config
        if c.mixer.type != "aft-local" or c.activation != "gelu" or hasattr(model, "start_embed"):
            raise ValueError("expected aft-local, gelu and no start embedding")
        self.tokens, self.dim, self.window, self.eps = c.tokens, c.dim, c.mixer.window, c.norm_eps
        blocks = [model.blocks[0 if c.share_layers else i] for i in range(c.depth)]
        self.blocks = nn.ModuleList(StreamBlock(block, c.tokens) for block in blocks)
        at = model.pos_embed if hasattr(model, "pos_embed") else torch.zeros(c.tokens, c.dim)
        for name, tensor in (("bytes", model.tok_embed), ("positions", at), ("norm_w", model.norm.weight),
                             ("norm_b", model.norm.bias), ("head_w", model.head.weight),
                             ("head_b", with_bias(model.head))):
            self.register_buffer(name, tensor.detach().clone())

    def state(self, streams):
        """Of a batch of streams that have read nothing: sums and ring of each block, changed in place by the steps"""
        return [(torch.zeros(streams, 2 * self.dim), torch.zeros(self.window, streams, 2 * self.dim))
                for _ in self.blocks]

    def forward(self, read, at, slot, state):
        """read: [B] the streams' bytes at position at [1], slot at % window [1] -> logits [B, 256]"""
        x = F.embedding(read, self.bytes) + self.positions.index_select(0, at)
        for block, (total, ring) in zip(self.blocks, state):
            x = block(x, at, slot, total, ring)
        return F.linear(F.layer_norm(x, self.norm_w.shape, self.norm_w, self.norm_b, self.eps), self.head_w,
                        self.head_b)
