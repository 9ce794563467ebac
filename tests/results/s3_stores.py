"""S3 stores on this machine: moto's, which imitates one, and the gateway of a Ceph cluster, which is one."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import raffed
from tests.cluster.nodes import free_ports

KEY, SECRET = "AKIAEXAMPLE", "verysecretkey"
BUCKET = "lab"
CEPH = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
RUN = raffed.RunConfig(
    method="scamap",
    data=raffed.Data(split="p4c5", local_test=0.2),
    model=raffed.Model("mlp", {"hidden": [8]}),
    local=raffed.Local(epochs=1),
    federation=raffed.Federation(rounds=3),
    runtime=raffed.Runtime(execution="serial"),
)
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{mon}]
ms bind msgr2 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mon allow pool size one = true
mon data = {folder}/mon
mon data avail crit = 0
mon data avail warn = 0
mon cluster log file = {folder}/cluster.log
osd data = {folder}/osd
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
"""


class Store(Protocol):
    """An S3 with the bucket `lab`, at `host`; `options` go behind a URL's path."""

    host: str

    @property
    def options(self) -> str: ...

    def names(self) -> list[str]:
        """Of the bucket's objects; markers of folders, which end in a slash, left out."""
        ...

    def end(self) -> None: ...


def _options(host: str) -> str:
    return f"?endpoint_override={host}&scheme=http&region=us-east-1"


class Moto:
    """moto's server, in this process."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self._server.start()
        self.host = "{}:{}".format(*self._server.get_host_and_port())
        self._ask("POST", "moto-api/reset")  # all servers of a process hold the same buckets
        self._ask("PUT", BUCKET)

    @property
    def options(self) -> str:
        return _options(self.host)

    def names(self) -> list[str]:
        found = ElementTree.fromstring(self._ask("GET", BUCKET))
        keys = [one.text or "" for one in found.iter() if one.tag.endswith("}Key")]
        return [key for key in keys if not key.endswith("/")]

    def end(self) -> None:
        self._server.stop()

    def _ask(self, verb: str, path: str) -> bytes:
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{self.host}/{path}", method=verb, headers=signed)
        ) as answer:
            return bytes(answer.read())


class Ceph:
    """A Ceph of one monitor, one storage daemon that keeps objects in memory, and an S3 gateway.

    `apt-get install --no-install-recommends ceph-mon ceph-osd radosgw` brings it. It is up after about 20 s.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rfceph", dir="/tmp"))  # sockets lie in it: a short path
        self._running: list[subprocess.Popen[bytes]] = []
        self._gateway: subprocess.Popen[bytes] | None = None
        fsid, storage = str(uuid.uuid4()), str(uuid.uuid4())
        mon, gateway = free_ports(2)
        self.host = f"127.0.0.1:{gateway}"
        for name in ("mon", "osd"):
            (self.folder / name).mkdir()
        self._conf = self.folder / "ceph.conf"
        self._conf.write_text(CONFIGURATION.format(fsid=fsid, mon=mon, gateway=gateway, folder=self.folder))
        try:
            monmap = str(self.folder / "monmap")
            self._call(
                "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{mon}]", monmap
            )
            self._call("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
            self._start("ceph-mon", "-i", "a")
            self._call("ceph", "--connect-timeout", "60", "osd", "new", storage)
            self._call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", storage)
            self._start_storage()
            names = ("--uid", "lab", "--display-name", "lab", "--access-key", KEY, "--secret-key", SECRET)
            self._call("radosgw-admin", "user", "create", *names)
        except BaseException:
            self.end_all()
            raise

    @property
    def options(self) -> str:
        return _options(self.host)

    def open(self) -> None:
        """Let the gateway answer, with the bucket `lab` empty.

        One that was killed takes half a minute to come back: Ceph waits for the other one until then.
        """
        if self._gateway is None:
            self._gateway = self._start("radosgw", "-n", "client.rgw")
        until = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < until, self.logs()
            time.sleep(0.3)
        from pyarrow.fs import S3FileSystem

        if BUCKET in json.loads(self._call("radosgw-admin", "bucket", "list")):
            self._call("radosgw-admin", "bucket", "rm", "--bucket", BUCKET, "--purge-objects")
        where = {"endpoint_override": self.host, "scheme": "http", "region": "us-east-1"}
        S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **where).create_dir(
            BUCKET
        )

    def names(self) -> list[str]:
        found = json.loads(
            self._call("radosgw-admin", "bucket", "list", "--bucket", BUCKET, "--max-entries", "9999")
        )
        return sorted(one["name"] for one in found if not one["name"].endswith(("/", ".meta")))

    def end(self) -> None:
        """End the gateway at once, as a machine that loses its power; Ceph keeps the objects."""
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway.wait()
            self._running.remove(self._gateway)
            self._gateway = None

    def end_all(self) -> None:
        """End every daemon and remove the folder."""
        for one in reversed(self._running):
            one.kill()
            one.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log"))

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}/", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "out.log").open("ab") as log:
            made = subprocess.Popen([*command, "-c", str(self._conf), "-f"], stdout=log, stderr=log)
        self._running.append(made)
        return made

    def _start_storage(self) -> None:
        """Start the storage daemon. Ceph 16's sometimes ends at its start, so that it may try three times."""
        for _ in range(3):
            storage = self._start("ceph-osd", "-i", "0")
            for _ in range(60):
                if storage.poll() is not None:
                    break
                if json.loads(self._call("ceph", "osd", "stat", "--format", "json"))["num_up_osds"]:
                    return
                time.sleep(0.5)
            storage.kill()
            storage.wait()
            self._running.remove(storage)
        raise RuntimeError(f"ceph-osd does not start: {self.logs()}")

    def _call(self, *command: str) -> str:
        words = [*command] if command[0] == "monmaptool" else [*command, "-c", str(self._conf)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr[-1000:]}\n{self.logs()}")
        return done.stdout


def has_ceph() -> bool:
    return all(shutil.which(name) for name in CEPH)


@contextlib.contextmanager
def ceph() -> Iterator[Ceph]:
    made = Ceph()
    try:
        yield made
    finally:
        made.end_all()
