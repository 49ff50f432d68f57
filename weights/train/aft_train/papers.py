"""The papers' rows as presets: a model's shape and its recipe for each row of a table of results.

weights/PAPERS.md has the same numbers beside where each is said; a test compares the two.
"""
from .recipe import Recipe

CIFAR_EPOCH, ENWIK8_EPOCH = 50_000, 90_000_000  # pictures, bytes to learn
IMAGENET_EPOCH = 1_281_167 // 1024  # steps of 1,024 pictures

# AFT sections 5.1 and 5.2: AdamW, the schedule of Vaswani et al. 2017, whose warm-up and beta2 these are.
CIFAR = Recipe(steps=200 * CIFAR_EPOCH // 128, batch=128, lr=3e-3, warmup=4000, schedule="root", weight_decay=0.1,
               clip=0.0)
ENWIK8 = Recipe(steps=100 * ENWIK8_EPOCH // (128 * 1024), batch=128, lr=3e-3, warmup=4000, schedule="root",
                weight_decay=0.5, clip=0.0)
# DeiT table 9 and its code, which AFT section 5.3 trains with.
DEIT = Recipe(steps=300 * IMAGENET_EPOCH, batch=1024, lr=1e-3, warmup=5 * IMAGENET_EPOCH, schedule="cosine",
              weight_decay=0.05, beta2=0.999, clip=0.0, ema=0.99996, evaluate_every=12500, save_every=1000)

DEEP, WIDE = dict(depth=24, dim=256), dict(depth=12, dim=512)  # of AFT tables 2 and 4
WINDOWS = (0, 1, 2, 4, 8, 32, 64, 128, 256, 512, 1024)  # of AFT table 5


def pixels():
    """AFT table 2 and the rows of DAFT on CIFAR-10: bits per sub-pixel."""
    def row(shape, mixer, **more):
        return dict(shape, mixer=mixer, size=32, dropout=0.1, flip=True, brightness=10, **more), CIFAR
    return {
        "aft-local-256-12x512": row(WIDE, "aft-local", window=256, rank=64),
        "aft-local-256-24x256": row(DEEP, "aft-local", window=256, rank=64),
        "aft-simple-24x256": row(DEEP, "aft-simple"),
        "transformer-12x512": row(WIDE, "attention", heads=4),
        "transformer-24x256": row(DEEP, "attention", heads=2),
        "daft-full-24x256": row(DEEP, "aft-full", rank=256),
        "daft-conv-256-24x256": row(DEEP, "aft-conv", kernel=256, heads=1),
    }


def text():
    """AFT tables 4 and 5: bits per character of Enwik8."""
    def row(shape, mixer, **more):
        return dict(shape, mixer=mixer, context=1024, dropout=0.1, **more), ENWIK8
    rows = {f"aft-local-{s}-24x256": row(DEEP, "aft-local", window=s, rank=256) for s in WINDOWS}
    return rows | {
        "aft-local-32-12x512": row(WIDE, "aft-local", window=32, rank=256),
        "aft-simple-24x256": row(DEEP, "aft-simple"),
        "transformer-12x512": row(WIDE, "attention", heads=8),
        "transformer-24x256": row(DEEP, "attention", heads=4),
    }


def pictures():
    """AFT table 7: ImageNet-1K at 224 pixels."""
    def row(dim, mixer, pooling="mean", **more):
        return dict(depth=12, dim=dim, mixer=mixer, pooling=pooling, resize_to=256, size=224, patch=16, dropout=0.0,
                    drop_path=0.1, crop="resized", shift=0, rand_augment=2, magnitude=9, erase=0.25, mixup=0.8,
                    cutmix=1.0, smoothing=0.1, repeats=3, **more), DEIT
    token = dict(pooling="class-token")
    rows = {"deit-tiny": row(192, "attention", heads=3, **token), "deit-small": row(384, "attention", heads=6, **token),
            "aft-full-tiny": row(192, "aft-full", rank=128, **token),
            "aft-full-small": row(384, "aft-full", rank=128, **token)}
    for size, dim, kernel, heads in (("tiny", 192, 11, 32), ("tiny", 192, 11, 192), ("small", 384, 11, 16),
                                     ("small", 384, 11, 384), ("small", 384, 15, 384)):
        rows[f"aft-conv-{size}-{heads}-{kernel}"] = row(dim, "aft-conv", kernel=kernel, heads=heads)
    return rows
