"""moto's S3, which imitates one in this process, and the run that is stored there."""

from __future__ import annotations

import urllib.request
from xml.etree import ElementTree

import raffed

KEY, SECRET = "AKIAEXAMPLE", "verysecretkey"
BUCKET = "lab"
RUN = raffed.RunConfig(
    method="scamap",
    data=raffed.Data(split="p4c5", local_test=0.2),
    model=raffed.Model("mlp", {"hidden": [8]}),
    local=raffed.Local(epochs=1),
    federation=raffed.Federation(rounds=3),
    runtime=raffed.Runtime(execution="serial"),
)


class Moto:
    """An S3 with the bucket `lab`, at `host`; `options` go behind a URL's path."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self._server.start()
        self.host = "{}:{}".format(*self._server.get_host_and_port())
        self._ask("POST", "moto-api/reset")  # all servers of a process hold the same buckets
        self._ask("PUT", BUCKET)

    @property
    def options(self) -> str:
        return f"?endpoint_override={self.host}&scheme=http&region=us-east-1"

    def names(self) -> list[str]:
        """Of the bucket's objects; markers of folders, which end in a slash, left out."""
        found = ElementTree.fromstring(self._ask("GET", BUCKET))
        keys = [one.text or "" for one in found.iter() if one.tag.endswith("}Key")]
        return [key for key in keys if not key.endswith("/")]

    def end(self) -> None:
        self._server.stop()

    def _ask(self, verb: str, path: str) -> bytes:
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
        asked = urllib.request.Request(f"http://{self.host}/{path}", method=verb, headers=signed)
        with urllib.request.urlopen(asked) as answer:
            return bytes(answer.read())
