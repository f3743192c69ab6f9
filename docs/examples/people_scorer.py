"""A scorer that is not Longtail's: OpenCV's pedestrian detector (HOG and a linear SVM, 2005) over HTTP.

`python people_scorer.py PORT`, as docs/bring-your-model.md tells. It needs numpy and opencv-python-headless.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2
import numpy as np

ENLARGED = 3.0  # its people are 128 pixels high, those in small pictures are less
HEAD, CLASS = "objects", "pedestrian"

cv2.setNumThreads(1)


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """For each picture the people in it, in the canonical form of a boxes head."""
    detector = cv2.HOGDescriptor()
    detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
    found = []
    for picture in request["pictures"]:
        png = np.frombuffer(base64.b64decode(picture["png_base64"]), np.uint8)
        image = cv2.resize(cv2.imdecode(png, cv2.IMREAD_COLOR), None, fx=ENLARGED, fy=ENLARGED)
        boxes, margins = detector.detectMultiScale(image, hitThreshold=0.0, winStride=(8, 8), scale=1.1)
        height, width = image.shape[:2]
        objects, doubts = [], [0.0]
        for (x, y, w, h), margin in zip(boxes, np.ravel(margins), strict=True):
            score = 1 / (1 + math.exp(-2 * float(margin)))
            # Its windows have a border around the person.
            x0, y0, x1, y1 = x + 0.16 * w, y + 0.06 * h, x + 0.84 * w, y + 0.94 * h
            box = [max(0, x0 / width), max(0, y0 / height), min(1, x1 / width), min(1, y1 / height)]
            objects.append({"id": str(len(objects)), "class": CLASS, "box": box, "score": score})
            doubts.append(1 - abs(2 * score - 1))
        found.append({"heads": {HEAD: {"value": {"objects": objects}, "uncertainty": max(doubts)}}})
    return {"answers": found}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        content = json.dumps(answers(json.loads(self.rfile.read(int(self.headers["content-length"]))))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
