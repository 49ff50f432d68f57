"""KServe's own client, as it is, against a daemon: kserve_client.py URL PICTURE. It runs in an environment of its
own, as what it pins does not go with the other clients. Prints a line for each behaviour; leaves with 1 at the first
that is not as it should be."""

import asyncio
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

URL, PICTURE = sys.argv[1:]
CONV, WRITER = "cifar10-aft-conv", "enwik8-aft-local"


def request(model, name, values, datatype, binary=True, **options):
    tensor = InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values, binary_data=binary)
    return InferRequest(model, [tensor], **options)


async def it_is_live_and_ready(client):
    assert await client.is_server_live(URL) and await client.is_server_ready(URL)
    assert await client.is_model_ready(URL, CONV)


async def pictures_are_classified(client):
    with open(PICTURE, "rb") as file:
        files = np.array([file.read()], dtype=object)
    answer = await client.infer(URL, request(CONV, "image", files, "BYTES"), CONV)
    assert answer.model_name == CONV and answer.outputs[1].as_numpy().argmax() == 3  # cat
    pixels = np.full((2, 32, 32, 3), 128, np.float32)
    wanted = [RequestedOutput("logits", {"binary_data": True})]
    both = [
        (await client.infer(URL, request(CONV, "pixels", pixels, "FP32", binary, request_outputs=wanted), CONV)).outputs
        for binary in (True, False)
    ]
    assert [len(outputs) for outputs in both] == [1, 1] and both[0][0].shape == [2, 10]
    np.testing.assert_array_equal(both[0][0].as_numpy(), both[1][0].as_numpy())


async def texts_are_written(client):
    asked = dict(parameters={"max_tokens": 20, "seed": 1}, model_version="1")
    prompts = np.array([b"The history of ", b"In "], dtype=object)
    answer = await client.infer(
        URL, request(WRITER, "prompt", prompts, "BYTES", False, request_id="me", **asked), WRITER
    )
    assert answer.id == "me" and len(answer.outputs[0].data) == 2
    alone = InferRequest(WRITER, [InferInput("prompt", [1], "BYTES", ["The history of "])], **asked)
    assert (await client.infer(URL, alone, WRITER)).outputs[0].data[0] == answer.outputs[0].data[0]


async def errors_say_what_was_wrong(client):
    for model, name, values, says in (
        ("none", "prompt", np.array([b"a"], dtype=object), "none"),
        (CONV, "pixels", np.full((1, 32, 32, 3), 0.5, np.float32), "multiply them by 255"),
    ):
        try:
            datatype = "FP32" if values.dtype == np.float32 else "BYTES"
            await client.infer(URL, request(model, name, values, datatype), model)
        except httpx.HTTPStatusError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{model} answered")


async def main():
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    for behaviour in (
        it_is_live_and_ready,
        pictures_are_classified,
        texts_are_written,
        errors_say_what_was_wrong,
    ):
        await behaviour(client)
        print("ok", behaviour.__name__)
    await client.close()


asyncio.run(main())
