"""Draw what softmax attention gives to each offset: aft-train offsets MODEL PICTURES -o PNG.

AFT's figures 1 (left) and 5, by which the paper chose a window: a row of tiles for each layer, one for each head. In
its middle is what a patch gives to itself, above and left of it what it gives to those above and left; brightness is
the mean over all pairs of patches so far apart and over all pictures, each tile with its own scale.
"""
import argparse
import sys

import torch

from .convert import at_least
from .export import ModelError, load, model_input
from .pictures import PictureError, read_pictures
from .quality import batches
from .recipe import called


@torch.inference_mode()
def mean_attention(model, pictures, limit):
    """softmax(q k^T / sqrt(d/h)) of each layer and head, the mean over pictures: [layers, heads, T, T], float64."""
    layers = []  # of one batch, in the order in which they run: layers may share a block

    def watch(mixer, inputs):
        q, k = (mixer.split(f(inputs[0])) for f in (mixer.q, mixer.k))
        layers.append(torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, dim=-1).sum(0, dtype=torch.float64))

    hooks = [block.mixer.register_forward_pre_hook(watch) for block in model.blocks]
    total = count = 0
    for x, _ in batches(pictures, model.config, limit):
        model(model_input(model, x))
        total, count = total + torch.stack(layers), count + len(x)
        layers.clear()
    for hook in hooks:
        hook.remove()
    return total / count


def by_offset(attention, grid):
    """The mean over all queries that have a patch at an offset: [..., T, T] -> [..., 2 H - 1, 2 W - 1].

    T: H * W patches, or those and a class token before them, which has no offset. Offset (0, 0) is in the middle.
    """
    height, width = grid
    lead = attention.shape[-1] - height * width
    of_pairs = attention[..., lead:, lead:].unflatten(-1, grid).unflatten(-3, grid)
    sums = attention.new_zeros(*attention.shape[:-2], 2 * height - 1, 2 * width - 1)
    pairs = attention.new_zeros(2 * height - 1, 2 * width - 1)
    for y in range(height):
        for x in range(width):
            here = (..., slice(height - 1 - y, 2 * height - 1 - y), slice(width - 1 - x, 2 * width - 1 - x))
            sums[here] += of_pairs[..., y, x, :, :]
            pairs[here] += 1
    return sums / pairs


def draw(tiles, path):
    """[layers, heads, rows, columns] as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    layers, heads = tiles.shape[:2]
    figure, axes = plt.subplots(layers, heads, figsize=(1.2 * heads, 1.2 * layers), dpi=100, squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axes[layer][head].imshow(tiles[layer, head].numpy(), cmap="inferno", vmin=0)
            axes[layer][head].set_axis_off()
    figure.subplots_adjust(0.01, 0.01, 0.99, 0.99, 0.05, 0.05)
    figure.savefig(path, format="png")
    plt.close(figure)


def parser(prog="aft-train offsets"):
    p = argparse.ArgumentParser(prog=prog, description=__doc__.split("\n\n", 1)[1])
    p.add_argument("model", metavar="MODEL", help="the directory of a classifier of pictures by attention")
    p.add_argument("pictures", metavar="PICTURES", help="class folders of pictures, or a tar of them")
    p.add_argument("-o", "--output", metavar="PNG", required=True, help="the file to write")
    p.add_argument("--part", metavar="NAME", help="the part with the class folders, such as test")
    p.add_argument("--limit", type=at_least(0), default=1000, metavar="N",
                   help="how many pictures, spread over all; 0: all (1000)")
    return p


def main(argv=None, name="aft_train.offsets"):
    args = parser(called(name)).parse_args(argv)
    try:
        model = load(args.model)
        c = model.config
        if (c.task, c.mixer.type) != ("image-classification", "attention"):
            raise ModelError(f"{args.model} is for {c.task} by {c.mixer.type}, expected image-classification by "
                             "attention: aft explain draws what other models look at")
        attention = mean_attention(model, read_pictures(args.pictures, part=args.part), args.limit)
        draw(by_offset(attention, c.grid), args.output)
    except (ModelError, PictureError, OSError, RuntimeError, MemoryError) as e:
        print(f"{called(name)}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{args.output}: {c.depth} layers from above, {c.mixer.heads} heads each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
