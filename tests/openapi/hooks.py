"""What schemathesis cannot know of this API: what a picture is, and which models and sessions there are."""

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
AUTHORIZATION = {"Authorization": f"Bearer {os.environ['AFTD_KEY']}"}
with urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/models", headers=AUTHORIZATION)) as answer:
    MODELS = json.load(answer)["data"]

# ---- pictures: whole ones, cut ones, ones with a byte changed, and no pictures ---------------------------------------

FILES = [path for kind in ("jpg", "png", "webp") for path in sorted(IMAGES.rglob(f"*.{kind}"))]
pictures = st.sampled_from([path.read_bytes() for path in FILES if path.stat().st_size < 20000])


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

# ---- models: three of four names that are made up become ones that there are, as a rule of the task ------------------

TASKS = {
    "/classify": "image-classification",
    "/explain": "image-classification",
    "/complete": "image-generation",
    "/generate": "text-generation",
    "/v1/completions": "text-generation",
    "/v1/chat/completions": "text-generation",
    "/v1/compress": "text-generation",
    "/v1/embeddings": "text-generation",
    "/v1/sessions": "text-generation",
}


# There are several models of their task, and one must be named.
SEVERAL = ("/classify", "/explain")


def some_model(context, choice):
    """`choice` is any number; every eighth model is of any task."""
    task = TASKS.get(context.operation.path)
    fit = [model["id"] for model in MODELS if choice % 8 == 7 or task in (None, model["task"])]
    return fit[choice % len(fit)]


def new_session():
    request = urllib.request.Request(f"{URL}/v1/sessions", b'{"prompt": "The "}', AUTHORIZATION)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["id"]


def is_made_up(given, *remainders):
    """Is it a name of a length that a real one stands for? Not where it is wrong on purpose: that must stay so."""
    could_be = isinstance(given, str) and 0 < len(given) <= 64 and not set("/\0") & set(given)
    return could_be and len(given) % 4 in remainders


def name_a_model(context, given):
    if isinstance(given, dict) and "model" not in given and context.operation.path in SEVERAL and len(given) % 2 == 0:
        given["model"] = some_model(context, len(given))
    if isinstance(given, dict) and is_made_up(given.get("model"), 0, 1, 2):
        given["model"] = some_model(context, len(given["model"]))
    if isinstance(given, dict) and is_made_up(given.get("session"), 1, 2):
        given["session"] = new_session()
    return given


@schemathesis.hook
def map_query(context, query):
    return name_a_model(context, query)


@schemathesis.hook
def map_body(context, body):
    return name_a_model(context, body)


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    for name in ("model", "name"):
        given = (path_parameters or {}).get(name)
        if is_made_up(given, 0, 1, 2):
            path_parameters[name] = some_model(context, len(given))
    given = (path_parameters or {}).get("session")
    if is_made_up(given, 0, 1, 2):
        path_parameters["session"] = new_session()
    return path_parameters


# ---- pictures in answers ---------------------------------------------------------------------------------------------


@schemathesis.deserializer("image/png")
def read_png(context, response):
    with PIL.Image.open(io.BytesIO(response.content)) as picture:
        picture.load()  # raises
    return "a picture"
