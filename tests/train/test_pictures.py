import io
import re
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image
from conftest import ROOT
from tiny import tiny_config

from aft_train import pictures
from aft_train.pictures import PictureError, decode, fit, read_pictures

IMAGES = ROOT / "tests" / "data" / "images"


def picture(seed, size=(6, 4), kind="PNG", **options):
    """Compressed bytes of a random picture of size (W, H)."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


FILES = {"dog/2.png": picture(0), "dog/10.png": picture(1), "cat/a.PNG": picture(2),
         "cat/b.jpg": picture(3, kind="JPEG")}


def write_folder(path, files):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def write_tar(path, files, folders=()):
    with tarfile.open(path, "w:" + path.suffix[1:].replace("tar", "")) as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize("how", ["folder", "p.tar", "p.tar.gz", "p.tar.xz"])
@pytest.mark.parametrize("above", ["", "./", "set/", "set/all/"])
def test_folders_and_tars_of_class_folders_are_read(how, above, tmp_path):
    files = {above + name: data for name, data in FILES.items()}
    files |= {above + "cat/.hidden.png": b"", above + "cat/notes.txt": b"no picture"}
    path = write_folder(tmp_path / "f", files) if how == "folder" else write_tar(tmp_path / how, files)
    found = read_pictures(path)
    assert found.classes == ["cat", "dog"] and found.labels == [0, 0, 1, 1] and len(found) == 4
    for i, name in enumerate(["cat/a.PNG", "cat/b.jpg", "dog/10.png", "dog/2.png"]):
        assert found.names[i].endswith("/" + name)
        image = found.image(i)
        assert image.mode == "RGB"
        assert image.tobytes() == Image.open(io.BytesIO(FILES[name])).convert("RGB").tobytes()


@pytest.mark.parametrize("how", ["folder", "p.tar"])
def test_parts_are_chosen_by_name(how, tmp_path):
    files = {"x/train/" + name: data for name, data in FILES.items()} | {"x/test/cat/1.png": picture(5)}
    path = write_folder(tmp_path / "f", files) if how == "folder" else write_tar(tmp_path / how, files)
    assert len(read_pictures(path, part="train")) == 4
    test = read_pictures(path, part="test")
    assert len(test) == 1 and test.classes == ["cat"] and test.image(0).size == (6, 4)
    with pytest.raises(PictureError, match="holds class folders in x/test, x/train, expected one .* choose a part"):
        read_pictures(path)
    with pytest.raises(PictureError, match="expected one of them to be the part valid"):
        read_pictures(path, part="valid")


def test_symbolic_links_are_followed_but_not_for_ever(tmp_path):
    write_folder(tmp_path / "far", {"1.png": picture(0)})
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "cat").symlink_to(tmp_path / "far")
    assert len(read_pictures(tmp_path / "f")) == 1
    (tmp_path / "far" / "loop").symlink_to(tmp_path / "far")
    with pytest.raises(PictureError, match="holds class folders in"):
        read_pictures(tmp_path / "f")


@pytest.mark.parametrize("files,message", [
    ({}, "holds no class folders"), ({"a.png": picture(0)}, "holds no class folders"),
    ({"cat/readme.txt": b""}, "holds no class folders"),
    ({"cat/1.png": picture(0), "dog/readme.txt": b""}, "the class folder dog holds no pictures"),
])
def test_what_is_no_collection_is_refused(files, message, tmp_path):
    (tmp_path / "f").mkdir()
    folders = {name.split("/")[0] for name in files if "/" in name}
    for path in (write_folder(tmp_path / "f", files), write_tar(tmp_path / "p.tar", files, folders)):
        with pytest.raises(PictureError, match=message):
            read_pictures(path)


def test_files_that_are_no_tars_are_refused(tmp_path):
    with pytest.raises(PictureError, match="no such folder or tar"):
        read_pictures(tmp_path / "nothing")
    (tmp_path / "text.tar").write_text("no tar")
    with pytest.raises(PictureError, match="text.tar: is no tar that can be read"):
        read_pictures(tmp_path / "text.tar")
    whole = write_tar(tmp_path / "p.tar.xz", FILES).read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PictureError, match="cut.tar.xz: is no tar that can be read"):
        read_pictures(tmp_path / "cut.tar.xz")


def test_tars_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "TAR_BYTES_MAX", 300)
    with pytest.raises(PictureError, match="more than 300 bytes of pictures: unpack it"):
        read_pictures(write_tar(tmp_path / "p.tar", FILES))


def png_header(width, height):
    """A PNG that says it is huge and then ends."""
    small = bytearray(picture(0, (1, 1)))
    small[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    return bytes(small)


@pytest.mark.parametrize("data,message", [
    (b"", "no picture that can be read"), (b"<svg/>", "no picture that can be read"),
    (picture(0, (40, 40))[:-200], "truncated"), (picture(0, (40, 40), "JPEG")[:-200], "truncated"),
    (png_header(17000, 1), "17000 x 1 pixels, expected at most 16384"), (png_header(8000, 8000), "8000 x 8000 pixels"),
    (png_header(16000, 16000), "16000|decompression bomb"),
])
def test_pictures_that_cannot_be_read_are_named(data, message, tmp_path):
    found = read_pictures(write_folder(tmp_path / "f", {"cat/bad.png": data}))
    with pytest.raises(PictureError, match=message) as e:
        found.image(0)
    assert str(e.value).startswith(f"{tmp_path}/f/cat/bad.png: ") and "\n" not in str(e.value)


def test_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rows are columns
    upright = decode(io.BytesIO(picture(0, kind="JPEG", exif=exif)))
    lying = Image.open(io.BytesIO(picture(0, kind="JPEG")))
    assert upright.size == (4, 6)
    assert upright.tobytes() == lying.transpose(Image.Transpose.ROTATE_270).tobytes()


def test_every_form_has_the_pixels_that_the_daemon_makes_of_it():
    images = ROOT / "tests" / "data" / "images"  # the daemon's tests expect the same figures
    rows = re.findall(r'{"(.*)", (\d+), (\d+), (0x[0-9a-f]+)}', (images / "formats.inc").read_text())
    assert len(rows) == len(list((images / "formats").iterdir())) > 30
    for name, width, height, crc in rows:
        image = decode(images / "formats" / name)
        assert (image.mode, *image.size) == ("RGB", int(width), int(height)), name
        assert zlib.crc32(image.tobytes()) == int(crc, 16), name


def test_what_is_transparent_lies_on_white():
    half = Image.new("RGBA", (2, 1), (200, 0, 100, 128))  # as gray 71
    half.putpixel((1, 0), (0, 0, 0, 0))
    for mode, want in ("RGBA", [[227, 127, 177], [255, 255, 255]]), ("LA", [[163, 163, 163], [255, 255, 255]]):
        out = io.BytesIO()
        half.convert(mode).save(out, "PNG")
        assert np.asarray(decode(out)).tolist() == [want], mode


@pytest.mark.parametrize("size,resize_to,how", [
    ((32, 32), 32, "bicubic"), ((24, 40), 37, "bilinear"), ((224, 224), 256, "bicubic"), ((64, 64), 48, "bicubic"),
])
def test_pictures_are_prepared_as_the_oracle_does(size, resize_to, how, oracle):
    config = tiny_config("image-classification", "aft-conv", size=size,
                         patch=(4, 4), resize_to=resize_to, interpolation=how)
    cfg = {"input": {"size": size, "resize_to": resize_to, "interpolation": how}}
    # Opaque ones: the oracle leaves transparency to Pillow, which drops it.
    formats = "rgb-8.png", "interlaced-rgb-8.png", "palette-8.png", "turned.png", "lossless.webp", "lossy.webp"
    files = [*sorted(IMAGES.glob("*.jpg")), *(IMAGES / "formats" / name for name in formats)]
    assert len(files) > 10
    for file in files:
        want = oracle.prepare(Image.open(file), cfg)
        got = fit(decode(file), config.size, config.resize_to, config.interpolation)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_pictures_are_prepared_as_their_model_says(tmp_path):
    found = read_pictures(write_folder(tmp_path / "f", {"cat/1.png": picture(0, (50, 30))}))
    config = tiny_config("image-classification", "aft-conv", size=(8, 12), resize_to=10)
    want = fit(decode(io.BytesIO(picture(0, (50, 30)))), (8, 12), 10)
    np.testing.assert_array_equal(found.prepared(0, config), np.asarray(want))


def test_strips_that_would_grow_without_end_are_refused(tmp_path):
    found = read_pictures(write_folder(tmp_path / "f", {"cat/strip.png": picture(0, (16000, 1))}))
    with pytest.raises(PictureError, match="strip.png: 16000 x 1 pixels: resized to a shorter side of 224"):
        found.prepared(0, tiny_config("image-classification", "aft-conv", size=(224, 224)))
