"""Labelled pictures, from a folder of class folders or a tar of one, and the part of a picture that a model sees."""
import copy
import io
import os
import sys
import tarfile
import warnings
from multiprocessing.pool import ThreadPool
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")
SIDE_MAX = 16384  # pixels, as the daemon takes them
PIXELS_MAX = 32 << 20  # of one picture, likewise; a phone's photograph has 12 million
RESIZED_PIXELS_MAX = 4 * PIXELS_MAX  # of a picture whose shorter side was brought to resize_to: long strips grow
TAR_BYTES_MAX = 4 << 30  # of compressed pictures, kept in memory
FITTED_BYTES_MAX = 4 << 30  # of pictures as a model sees them, kept in memory
DEPTH_MAX = 5  # folders in folders: more is a loop of symbolic links
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

# Image.open warns of large pictures; `decode` refuses smaller ones than that already.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class PictureError(ValueError):
    """A picture or a collection of pictures that cannot be used; the text names the file and what was expected."""


def fit(image, size, resize_to=0, interpolation="bicubic"):
    """Resize the shorter side to `resize_to` (0: the shorter one of `size`), crop the centre to `size` (H, W).

    The longer side is truncated to a whole number, the crop's offset rounded half to even, and what lies outside the
    picture is black, as weights/FORMAT.md says. RGB image -> RGB image.
    """
    height, width = size
    short = resize_to or min(height, width)
    w, h = image.size
    if min(w, h) != short:
        resized = (short, max(1, int(short * h / w))) if w <= h else (max(1, int(short * w / h)), short)
        if resized[0] * resized[1] > RESIZED_PIXELS_MAX:
            raise PictureError(f"{w} x {h} pixels: resized to a shorter side of {short} it has {resized[0]} x "
                               f"{resized[1]}, expected at most {RESIZED_PIXELS_MAX} pixels")
        image = image.resize(resized, FILTERS[interpolation])
        w, h = resized
    left, top = round((w - width) / 2), round((h - height) / 2)
    return image.crop((left, top, left + width, top + height))


def flatten(image):
    """Any image -> RGB as the daemon makes it: what is transparent lies on white, of 16 bits the upper 8 count."""
    if image.mode.startswith("I"):  # gray; Pillow would cut its values off at 255
        return Image.fromarray((np.asarray(image, np.uint32) >> 8).astype(np.uint8)).convert("RGB")
    if "transparency" not in image.info and "A" not in image.getbands():
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image)
    return white


def decode(source):
    """A path or a binary file -> RGB image, turned upright by its EXIF orientation, transparent parts white.

    Raises PictureError.
    """
    try:
        with Image.open(source) as image:
            w, h = image.size
            if max(w, h) > SIDE_MAX or w * h > PIXELS_MAX:
                raise PictureError(f"{w} x {h} pixels, expected at most {SIDE_MAX} a side and {PIXELS_MAX} in all")
            return flatten(ImageOps.exif_transpose(image))
    except PictureError:
        raise
    except Exception as e:  # Pillow's decoders raise whatever they trip over
        text = "no picture that can be read" if isinstance(e, Image.UnidentifiedImageError) else str(e)
        raise PictureError(text or type(e).__name__) from None


class Pictures:
    """Labelled pictures in the order of their class, then file name.

    classes: names of the class folders, sorted; names: the file of each picture, for messages; labels: the class
    number of each; left_out: files beside them that are no pictures by name, or of no class. Pictures are decoded when
    they are asked for, by any thread or process.
    """

    def __init__(self, classes, names, labels, sources, left_out=()):
        """sources: a Path or the compressed bytes of each picture."""
        self.left_out, self.change = left_out, None
        self.classes, self.names, self.labels, self.sources = classes, names, labels, sources
        self.kept = []

    def __len__(self):
        return len(self.names)

    def image(self, i):
        """The RGB image, upright. Raises PictureError naming the file."""
        source = self.sources[i]
        try:
            return decode(io.BytesIO(source) if isinstance(source, bytes) else source)
        except PictureError as e:
            raise PictureError(f"{self.names[i]}: {e}") from None

    def changed(self, change):
        """The same pictures, where a model sees change(image) in place of the image that it would see."""
        other = copy.copy(self)
        other.change = change
        return other

    def shorter_side(self, i):
        """In pixels, of picture i; 0 if it cannot be read."""
        source = self.sources[i]
        try:
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                return min(image.size)
        except Exception:  # `image` tells what is wrong
            return 0

    def keep_fitted(self, config):
        """Decode all pictures now, as one model sees them, and keep them so. Raises PictureError naming the file.

        Where that is too much for memory, they go on being decoded when they are asked for.
        """
        height, width = config.size
        if len(self) * height * width * 4 > FITTED_BYTES_MAX:
            return
        with ThreadPool() as pool:
            made = pool.imap(lambda i: self.fitted(i, config), range(len(self)))
            self.kept = list(tqdm(made, desc="decode", total=len(self), unit="picture", file=sys.stderr, leave=False,
                                  disable=None))

    def fitted(self, i, config):
        """What a model sees of picture i, as an image. Raises PictureError naming the file."""
        image = self.kept[i] if self.kept else self.image(i)
        try:
            image = image if self.kept else fit(image, config.size, config.resize_to, config.interpolation)
        except PictureError as e:
            raise PictureError(f"{self.names[i]}: {e}") from None
        return self.change(image) if self.change else image

    def prepared(self, i, config):
        """What a model sees of picture i, not yet normalised: uint8 [H, W, 3]. Raises PictureError naming the file."""
        return np.array(self.fitted(i, config))


def is_picture(name):
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def refuse_unreadable(error):
    raise PictureError(f"{error.filename}: {error.strerror}")


def in_folder(path, part=None):
    """What is below a folder, of every part, by names in parts: {picture: Path}, {folders}, {other files}."""
    pictures, folders, others = {}, set(), set()
    for where, below, files in os.walk(path, onerror=refuse_unreadable, followlinks=True):
        at = Path(where).relative_to(path).parts
        below[:] = [] if len(at) >= DEPTH_MAX else [name for name in below if not name.startswith(".")]
        folders.update(at + (name,) for name in below)
        pictures.update({at + (name,): Path(where, name) for name in files if is_picture(name)})
        others.update(at + (name,) for name in files if not name.startswith(".") and not is_picture(name))
    return pictures, folders, others


def in_tar(path, part=None):
    """As in_folder, of a tar and with the pictures' compressed bytes; those of other parts are left out (None)."""
    pictures, folders, others, total = {}, set(), set(), 0
    try:
        with tarfile.open(path, "r|*") as tar:
            for member in tar:
                name = tuple(p for p in PurePosixPath(member.name).parts if p not in (".", "/"))
                if member.isdir() and name:
                    folders.add(name)
                elif member.isfile() and is_picture(name[-1]):
                    folders.update(name[:n] for n in range(1, len(name)))
                    pictures[name] = None
                    if part is None or name[-3:-2] == (part,):
                        total += member.size
                        if total > TAR_BYTES_MAX:
                            raise PictureError(f"{path}: holds more than {TAR_BYTES_MAX} bytes of pictures: unpack it "
                                               "and name the folder")
                        pictures[name] = tar.extractfile(member).read()
                elif member.isfile() and not name[-1].startswith("."):
                    others.add(name)
    except PictureError:
        raise
    except Exception as e:  # of tarfile and of three decompressors
        raise PictureError(f"{path}: is no tar that can be read: {e}") from None
    return pictures, folders, others


def read_pictures(path, part=None):
    """A folder of class folders, or a .tar, .tar.gz or .tar.xz of one -> Pictures. Further folders may stand above.

    part: the folder whose class folders are meant where there are several of them, "train" or "test". A tar is read
    into memory once, as compressed pictures. Raises PictureError.
    """
    path = Path(path)
    if not path.exists():
        raise PictureError(f"{path}: no such folder or tar of pictures")
    pictures, folders, others = (in_folder if path.is_dir() else in_tar)(path, part)
    parents = sorted({name[:-2] for name in pictures if len(name) >= 2})
    if not parents:
        raise PictureError(f"{path}: holds no class folders, expected folders of pictures ({' '.join(SUFFIXES)})")
    chosen = [at for at in parents if part is None or at[-1:] == (part,)]
    if len(chosen) != 1:
        parts = ", ".join("/".join(at) or "." for at in parents[:10])
        wanted = "one folder of class folders; choose a part" if part is None else f"one of them to be the part {part}"
        raise PictureError(f"{path}: holds class folders in {parts}, expected {wanted}")
    root = chosen[0]
    classes = sorted(name[-1] for name in folders if name[:-1] == root)
    chosen = sorted(name for name in pictures if len(name) == len(root) + 2 and name[:-2] == root)
    filled = {name[-2] for name in chosen}
    for name in classes:
        if name not in filled:
            raise PictureError(f"{path}: the class folder {'/'.join(root + (name,))} holds no pictures")
    number = {name: i for i, name in enumerate(classes)}
    left_out = sorted(name for name in others | (pictures.keys() - set(chosen)) if name[: len(root)] == root)
    full = lambda name: f"{path}/{'/'.join(name)}"
    return Pictures(classes, [full(name) for name in chosen], [number[name[-2]] for name in chosen],
                    [pictures[name] for name in chosen], [full(name) for name in left_out])
