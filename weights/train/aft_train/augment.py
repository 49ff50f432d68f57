"""Random changes of training pictures: crops, RandAugment and erasing of one picture, mixup and cutmix of a batch.

Everything random comes from a numpy generator that the caller seeds, so that a batch can be made again. Pillow does
the picture work; torchvision's transforms draw from global generators and need a build that matches PyTorch's.
"""
import io
import math
import zlib

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

FILL = (124, 116, 104)  # ImageNet's mean colour, shown where a picture was moved away
ASPECTS = (3 / 4, 4 / 3)  # of a random crop, width by height


def affine(matrix):
    return lambda im, m: im.transform(im.size, Image.Transform.AFFINE, matrix(m, *im.size), Image.Resampling.BICUBIC,
                                      fillcolor=FILL)


def solarize_add(image, most):
    """Add up to `most` to the values below 128."""
    return image.point([min(255, v + most) if v < 128 else v for v in range(256)] * 3)


# RandAugment (Cubuk et al. 2020): name -> (RGB picture, strength -1..1) -> picture. Operations and ranges are those of
# timm's rand-m9-mstd0.5-inc1, with which DeiT was trained; those without two directions take the strength's size.
OPERATIONS = {
    "autocontrast": lambda im, m: ImageOps.autocontrast(im),
    "equalize": lambda im, m: ImageOps.equalize(im),
    "invert": lambda im, m: ImageOps.invert(im),
    "rotate": lambda im, m: im.rotate(30 * m, Image.Resampling.BICUBIC, fillcolor=FILL),
    "posterize": lambda im, m: ImageOps.posterize(im, max(1, 4 - int(4 * abs(m)))),  # of 0 bits nothing would be left
    "solarize": lambda im, m: ImageOps.solarize(im, 256 - int(256 * abs(m))),
    "solarize add": lambda im, m: solarize_add(im, int(110 * abs(m))),
    "colour": lambda im, m: ImageEnhance.Color(im).enhance(1 + 0.9 * m),
    "contrast": lambda im, m: ImageEnhance.Contrast(im).enhance(1 + 0.9 * m),
    "brightness": lambda im, m: ImageEnhance.Brightness(im).enhance(1 + 0.9 * m),
    "sharpness": lambda im, m: ImageEnhance.Sharpness(im).enhance(1 + 0.9 * m),
    "shear x": affine(lambda m, w, h: (1, 0.3 * m, 0, 0, 1, 0)),
    "shear y": affine(lambda m, w, h: (1, 0, 0, 0.3 * m, 1, 0)),
    "move x": affine(lambda m, w, h: (1, 0, 0.45 * m * w, 0, 1, 0)),
    "move y": affine(lambda m, w, h: (1, 0, 0, 0, 1, 0.45 * m * h)),
}


def as_jpeg(image, quality):
    file = io.BytesIO()
    image.save(file, "jpeg", quality=quality)
    return Image.open(file).convert("RGB")


def noisy(image, deviation):
    """Normal noise on every value, which depends on the picture alone."""
    pixels = np.array(image)
    noise = np.random.default_rng(zlib.crc32(pixels.tobytes())).normal(0, deviation, pixels.shape)
    return Image.fromarray(np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8))


DAMAGES = {  # what pictures may have been through, in which a classifier is measured as well
    "as JPEG of quality 30": lambda im: as_jpeg(im, 30),
    "blurred by a pixel": lambda im: im.filter(ImageFilter.GaussianBlur(1)),
    "half as bright": lambda im: ImageEnhance.Brightness(im).enhance(0.5),
    "with noise of 10 of 255": lambda im: noisy(im, 10),
}


def rand_augment(image, rng, count, magnitude):
    """`count` random operations, each done with probability 1/2, at a strength of N(magnitude, 0.5) of 10."""
    names = list(OPERATIONS)
    for _ in range(count):
        name = names[rng.integers(len(names))]
        strength = float(np.clip(rng.normal(magnitude, 0.5), 0, 10)) / 10
        sign = 1 if rng.random() < 0.5 else -1
        if rng.random() < 0.5:
            image = OPERATIONS[name](image, sign * strength)
    return image


def sides(rng, area, aspects):
    """(width, height) in whole pixels of an area, of an aspect drawn log-uniformly from a range."""
    aspect = math.exp(rng.uniform(*np.log(aspects)))
    return round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))


def random_resized_crop(image, rng, size, least):
    """A part of `least` to all of the area, of aspect 3/4 to 4/3, resized to size (H, W); Inception's crop."""
    width, height = image.size
    for _ in range(10):
        w, h = sides(rng, width * height * rng.uniform(least, 1), ASPECTS)
        if 0 < w <= width and 0 < h <= height:
            x, y = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            break
    else:  # a strip: the largest such part of its middle
        w, h = min(width, round(height * ASPECTS[1])), min(height, round(width / ASPECTS[0]))
        x, y = (width - w) // 2, (height - h) // 2
    return image.resize(size[::-1], Image.Resampling.BICUBIC, box=(x, y, x + w, y + h))


def shifted(image, rng, by):
    """The picture moved by up to `by` pixels each way over black."""
    x, y = (int(v) for v in rng.integers(-by, by + 1, 2))
    w, h = image.size
    return image.crop((x, y, x + w, y + h))


def erase(pixels, rng, probability):
    """Random erasing (Zhong et al. 2020): noise over 2 % to 33 % of a picture.

    pixels: uint8 [H, W, 3], changed in place.
    """
    if rng.random() >= probability:
        return
    height, width = pixels.shape[:2]
    for _ in range(10):
        w, h = sides(rng, height * width * rng.uniform(0.02, 1 / 3), (0.3, 1 / 0.3))
        if 0 < h < height and 0 < w < width:
            y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            pixels[y : y + h, x : x + w] = rng.integers(0, 256, (h, w, 3))
            return


def mix(x, target, rng, mixup, cutmix):
    """Mixup (Zhang et al. 2018) or cutmix (Yun et al. 2019) of a batch with itself reversed, each half of the time.

    x: [B, 3, H, W]; target: [B, classes] probabilities; mixup, cutmix: alpha of Beta(alpha, alpha), from which the
    share that a picture keeps is drawn. 0 leaves one of the two out, 0 and 0 both.
    """
    kinds = [k for k in (("mixup", mixup), ("cutmix", cutmix)) if k[1] > 0]
    if not kinds:
        return x, target
    kind, alpha = kinds[rng.integers(len(kinds))]
    keep = float(rng.beta(alpha, alpha))
    if kind == "mixup":
        x = keep * x + (1 - keep) * x.flip(0)
    else:
        rows, columns = (random_span(side, math.sqrt(1 - keep), rng) for side in x.shape[2:])
        x, other = x.clone(), x.flip(0)
        x[:, :, rows, columns] = other[:, :, rows, columns]
        keep = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (x.shape[2] * x.shape[3])
    return x, keep * target + (1 - keep) * target.flip(0)


def random_span(side, share, rng):
    """A slice of a share of 0..side-1 around a random middle; what would lie beyond the ends is cut off."""
    middle, half = int(rng.integers(side)), int(side * share) // 2
    return slice(max(0, middle - half), min(side, middle + half))
