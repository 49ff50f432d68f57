"""with_kserve.py [URL [PICTURE]]: the most probable label of a picture by KServe's client, as tensors."""

import asyncio
import pathlib
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
PICTURE = sys.argv[2] if len(sys.argv) > 2 else "weights/models/cifar10-aft-conv/sample.jpg"
MODEL = "cifar10-aft-conv"


async def main():
    picture = np.array([pathlib.Path(PICTURE).read_bytes()], dtype=object)
    image = InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(picture)
    wanted = RequestedOutput("probabilities", {"classification": 1})
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    answer = await client.infer(URL, InferRequest(MODEL, [image], request_outputs=[wanted]), MODEL)
    await client.close()
    probability, _index, label = answer.outputs[0].data[0].split(":")
    print(f"{float(probability):.4f} {label}")


asyncio.run(main())
