"""The whole model: embedding, blocks, norm, head. Its state_dict has the served tensors' names and shapes."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

from . import mixers
from .model_config import TASKS, ModelConfig, replace

ACTIVATION = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


def dropped(x, rate):
    """x with elements dropped, and the others scaled up, as F.dropout's. That draws a number for each element, which on
    a processor takes a tenth of a step; here eight share 64 random bits, so that the rate is one in steps of 1/256."""
    if not rate:
        return x
    at = min(255, max(1, round(256 * rate)))
    bits = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    kept = bits.view(torch.uint8)[: x.numel()].view(x.shape) >= at
    return x * kept * (256 / (256 - at))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc1 = nn.Linear(config.dim, config.mlp_ratio * config.dim)
        self.fc2 = nn.Linear(config.mlp_ratio * config.dim, config.dim)
        self.activation = ACTIVATION[config.activation]

    def forward(self, x):
        return self.fc2(self.activation(self.fc1(x)))


class Block(nn.Module):
    """x += mixer(norm1(x)); x += mlp(norm2(x)). In training a branch is dropped whole, by picture, at `drop_path`."""

    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, config.norm_eps)
        self.mixer = mixers.build(config)
        self.norm2 = nn.LayerNorm(config.dim, config.norm_eps)
        self.mlp = Mlp(config)
        self.dropout = self.drop_path = 0.0

    def branch(self, y):
        y = dropped(y, self.dropout if self.training else 0.0)
        if self.drop_path and self.training:
            keep = torch.rand(y.shape[0], 1, 1, device=y.device) >= self.drop_path
            y = y * keep / (1 - self.drop_path)
        return y

    def forward(self, x, grid=(), mask=None):
        x = x + self.branch(self.mixer(self.norm1(x), grid, mask))
        return x + self.branch(self.mlp(self.norm2(x)))


class Model(nn.Module):
    """Any model of the served format.

    Pictures go in as [B, 3, H, W], normalised, and come out as logits [B, classes]. Bytes and sub-pixels go in as
    integers [B, T]; generators give [B, T, 256], where row t is about element t + 1, or, with a start embedding,
    about element t; classifiers give [B, classes].
    """

    def __init__(self, config: ModelConfig, *, start_embed=None, pos_embed=True, cls_token=True, dropout=0.0,
                 drop_path=0.0):
        """start_embed: whether sequences begin with a learnt vector (None: pixels do); pos_embed: learnt positions;
        cls_token: whether texts that are pooled by class token have a learnt one (pictures do), or their first byte."""
        super().__init__()
        self.config = config
        d = config.dim
        image = TASKS[config.task] == "image"
        if image:
            self.patch_embed = nn.Conv2d(3, d, config.patch, config.patch)
        else:
            self.tok_embed = nn.Parameter(torch.randn(256, d) * 0.02)
        if config.pooling == "class-token" and (image or cls_token):
            self.cls_token = nn.Parameter(torch.randn(d) * 0.02)
        if start_embed if start_embed is not None else config.task == "image-generation":
            self.start_embed = nn.Parameter(torch.randn(d) * 0.02)
        if pos_embed:
            self.pos_embed = nn.Parameter(torch.randn(config.tokens, d) * 0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(1 if config.share_layers else config.depth))
        self.norm = nn.LayerNorm(d, config.norm_eps)
        if config.pooling == "attention" and not config.causal:
            self.pool_score = nn.Parameter(torch.randn(d) * 0.02)
        self.head = nn.Linear(d, config.outputs)
        self.regularise(dropout, drop_path)
        self.initialise()

    def regularise(self, dropout, drop_path):
        """Set what is dropped in training: elements everywhere, and whole branches, the more the deeper (DeiT)."""
        self.embed_dropout = dropout
        for i, block in enumerate(self.blocks):
            block.dropout, block.drop_path = dropout, drop_path * i / max(1, len(self.blocks) - 1)

    def resize(self, size, resize_to=None):
        """Make a classifier of pictures one of pictures of another size, (H, W): what it has learnt of positions is
        interpolated over their grid, bicubically as DeiT's is; biases by offset stay. Raises ConfigError."""
        old = self.config
        resize_to = resize_to or round((old.resize_to or min(old.size)) * min(size) / min(old.size))
        self.config = replace(old, size=size, resize_to=resize_to)
        if old.mixer.type == "aft-local":  # as many rows of patches as before: it counts patches, row after row
            window = max(1, round(old.mixer.window * self.config.grid[1] / old.grid[1]))
            self.config = replace(self.config, mixer=replace(old.mixer, window=window))
            for block in self.blocks:
                block.mixer.window = window
        lead = old.tokens - old.grid[0] * old.grid[1]  # a class token

        def over_grid(rows):
            body = rows[lead:].T.reshape(1, -1, *old.grid)
            body = F.interpolate(body, self.config.grid, mode="bicubic", align_corners=False)
            return torch.cat([rows[:lead], body.flatten(2)[0].T])

        for module in self.modules():
            for name, p in list(module._parameters.items()):
                if name in ("pos_embed", "pos_u", "pos_v", "pos_bias"):
                    rows = over_grid(p.detach())
                    setattr(module, name, nn.Parameter(over_grid(rows.T).T if name == "pos_bias" else rows))
        self.confine()

    def relabel(self, labels):
        """Make a classifier one of these labels: with a fresh head, unless they are those it has, in any order ->
        whether they are."""
        had = self.config.labels
        self.config = replace(self.config, labels=labels)
        if sorted(labels) == sorted(had) and len(set(had)) == len(had):
            order = [had.index(label) for label in labels]
            with torch.no_grad():
                self.head.weight.copy_(self.head.weight[order])
                if self.head.bias is not None:
                    self.head.bias.copy_(self.head.bias[order])
            return True
        self.head = nn.Linear(self.config.dim, len(labels))
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        return False

    @torch.no_grad()
    def temper(self, temperature):
        """Divide the logits by a temperature, for good."""
        for p in self.head.parameters():
            p /= temperature

    def initialise(self):
        """Truncated normal 0.02 for linear weights, the branches' last ones divided by sqrt(2 L) (GPT-2's scheme)."""
        linear = ("q", "k", "v", "out", "fc1", "fc2", "head")
        for name, p in self.named_parameters():
            if name.endswith(tuple(layer + ".weight" for layer in linear)):
                nn.init.trunc_normal_(p, std=0.02)
                if name.endswith(("out.weight", "fc2.weight")):
                    with torch.no_grad():
                        p /= (2 * self.config.depth) ** 0.5
            elif name.endswith(tuple(layer + ".bias" for layer in linear)):
                nn.init.zeros_(p)

    def embed(self, x):
        """Input -> tokens [B, T, d], positions added."""
        if hasattr(self, "patch_embed"):
            x = self.patch_embed(x).flatten(2).transpose(1, 2)
        else:
            x = F.embedding(x.long(), self.tok_embed)
            if hasattr(self, "start_embed"):
                x = torch.cat([self.start_embed.expand(x.shape[0], 1, -1), x[:, :-1]], dim=1)
        if hasattr(self, "cls_token"):
            x = torch.cat([self.cls_token.expand(x.shape[0], 1, -1), x], dim=1)
        if hasattr(self, "pos_embed"):
            x = x + self.pos_embed[: x.shape[1]]
        return x

    def features(self, x, mask=None):
        """Input -> [B, T, d] after the last norm; mask as in mixers.py, of what embed() gives."""
        grid = ()
        if x.dim() == 4 and not hasattr(self, "cls_token"):
            grid = tuple(side // patch for side, patch in zip(x.shape[2:], self.config.patch))
        x = dropped(self.embed(x), self.embed_dropout if self.training else 0.0)
        for i in range(self.config.depth):
            x = self.blocks[0 if self.config.share_layers else i](x, grid, mask)
        return self.norm(x)

    def forward(self, x, lengths=None):
        """lengths: of texts to classify, [B], the rest of which is padding; None: all are as long as x."""
        mask = None
        if lengths is not None:
            at = torch.arange(x.shape[1] + hasattr(self, "cls_token"), device=x.device)
            mask = (at < lengths[:, None] + hasattr(self, "cls_token"))[:, :, None]
        x = self.features(x, mask)
        return self.head(x if self.config.causal else self.pooled(x, mask))

    def pooled(self, x, mask=None):
        """What the head sees of a classifier's features, [B, T, d] -> [B, d]. Attention: Wu et al. 2021, eq. 3, 4."""
        if self.config.pooling == "class-token":
            return x[:, 0]
        if self.config.pooling == "mean":
            return x.mean(1) if mask is None else mixers.hidden(x, mask, 0.0).sum(1) / mask.sum(1)
        scores = mixers.wide(x @ self.pool_score)[:, :, None] / x.shape[2] ** 0.5
        return (torch.softmax(mixers.hidden(scores, mask, -torch.inf), dim=1) * x).sum(1)

    def confine(self):
        """Bring the position biases back into what the served format allows; to be called after a step of training."""
        for module in self.modules():
            if isinstance(module, (mixers.AftPosition, mixers.ReparameterisedKernel, mixers.OneTapKernel)):
                module.confine()

    def convolutions(self):
        return [block.mixer for block in self.blocks if isinstance(block.mixer, mixers.AftConv)]

    def learn_one_tap(self):
        """Let each head of aft-conv learn a kernel of a single tap."""
        for mixer in self.convolutions():
            mixer.conv = mixers.OneTapKernel(mixer.heads, mixer.conv.weight.shape[1:])

    def settled(self):
        """The model as it is served: itself, or one with the kernels that those of one tap have come to."""
        if not any(isinstance(mixer.conv, mixers.OneTapKernel) for mixer in self.convolutions()):
            return self
        model = copy.deepcopy(self)
        for mixer in model.convolutions():
            mixer.conv = mixer.conv.settled()
        return model

    def kernel_entropy(self):
        """See mixers.kernel_entropy, mean over the blocks."""
        return torch.stack([mixers.kernel_entropy(mixer.conv()) for mixer in self.convolutions()]).mean()

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())
