"""What schemathesis cannot know of this API: what a picture is, and which models there are."""

import io
import json
import os
import pathlib
import urllib.request

import PIL.Image
import schemathesis
from hypothesis import strategies as st

URL = os.environ["AFTD_URL"]
IMAGES = pathlib.Path(__file__).resolve().parent.parent / "data" / "images"
with urllib.request.urlopen(f"{URL}/v1/models") as answer:
    MODELS = [model["id"] for model in json.load(answer)["data"]]

# ---- pictures: whole ones, cut ones, ones with a byte changed, and no pictures ---------------------------------------

pictures = st.sampled_from([path.read_bytes() for path in sorted(IMAGES.iterdir()) if path.stat().st_size < 20000])


@st.composite
def damaged(draw):
    picture = draw(pictures)
    at = draw(st.integers(0, len(picture) - 1))
    if draw(st.booleans()):
        return picture[:at]
    return picture[:at] + bytes([draw(st.integers(0, 255))]) + picture[at + 1 :]


bodies = st.one_of(pictures, pictures, damaged(), st.binary(max_size=64))
for kind in ("image/jpeg", "image/png", "image/webp", "application/octet-stream"):
    schemathesis.openapi.media_type(kind, bodies)

# ---- models: three of four names that are made up become ones that there are ---------------------------------------------


def name_a_model(given):
    if isinstance(given, dict) and isinstance(given.get("model"), str) and len(given["model"]) % 4 != 3:
        given["model"] = MODELS[len(given["model"]) % len(MODELS)]
    return given


@schemathesis.hook
def map_query(context, query):
    return name_a_model(query)


@schemathesis.hook
def map_body(context, body):
    return name_a_model(body)


# ---- pictures in answers ---------------------------------------------------------------------------------------------


@schemathesis.deserializer("image/png")
def read_png(context, response):
    with PIL.Image.open(io.BytesIO(response.content)) as picture:
        picture.load()  # raises
    return "a picture"
