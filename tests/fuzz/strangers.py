"""Files as a stranger might make them: small on the disk and endless in memory, or programs when opened."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 30_000_000


class Trap:
    """Unpickled it makes the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def endless_rows(path: Path) -> None:
    """Make of a Parquet file one of the same columns and 2 MB that holds 30,000,000 rows."""
    many = pq.ParquetFile(path).read().take(pa.array(np.zeros(10**6, np.int32)))
    with pq.ParquetWriter(path, many.schema, compression="zstd", write_page_checksum=True) as writer:
        for _ in range(ROWS // 10**6):
            writer.write_table(many)


def npy(kind: str, shape: str, raw: bytes = b"", pad: int = 0) -> bytes:
    """A file of NumPy's format 2.0 with any header, which may be as long as it likes."""
    header = (
        f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * pad + b"\n"
    )
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + raw


def replaced(path: Path, name: str, raw: bytes) -> None:
    """Put other bytes into an npz file as one of its arrays; compressed, as np.savez_compressed does."""
    with zipfile.ZipFile(path) as archive:
        kept = {one: archive.read(one) for one in archive.namelist() if one != f"{name}.npy"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, stored in {**kept, f"{name}.npy": raw}.items():
            archive.writestr(one, stored)


def saved(array: npt.NDArray[np.generic]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


Spoil = Callable[[Path, Path], None]  # of a file, with the place where a trap leaves its mark


def with_rows(header: bytes) -> Spoil:
    """A partition whose largest array is this one."""
    return lambda path, trap: replaced(path, "train_indices", header)


def program(path: Path, trap: Path) -> None:
    """Its header is Python that makes a file."""
    shape = f"(__import__('pathlib').Path({str(trap)!r}).touch(),)"
    replaced(path, "train_indices", npy("<i8", shape, bytes(8)))


PARTITIONS: dict[str, Spoil] = {
    "a pickle": lambda path, trap: replaced(
        path, "train_indices", saved(np.array([Trap(trap)], dtype=object))
    ),
    "a shape without data": with_rows(npy("<i8", f"({2**50},)")),
    "a shape of many terabytes and no row": with_rows(npy("<i8", f"({2**44}, 0, {2**18})")),
    "a header of 100 MB": with_rows(npy("<i8", "(1,)", bytes(8), pad=10**8)),
    "a header that is a program": program,
    "zeros that unpack to more than is read": lambda path, trap: replaced(
        path, "train_indices", saved(np.zeros(2**28, np.int64))
    ),
}


def safetensors_header(path: Path, length: int, raw: bytes) -> None:
    path.write_bytes(struct.pack("<Q", length) + raw)


BEYOND = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode().ljust(80)
LONG = b"{" + b" " * (9 * 10**7 - 2) + b"}"
WEIGHTS: dict[str, Spoil] = {
    "a header of 2^62 bytes": lambda path, trap: safetensors_header(path, 2**62, b"{}"),
    "a header of 90 MB": lambda path, trap: safetensors_header(path, 9 * 10**7, LONG),
    "a header of brackets": lambda path, trap: safetensors_header(path, 10**6, b"[" * 10**6),
    "a tensor beyond the end": lambda path, trap: safetensors_header(path, 80, BEYOND),
    "a pickle": lambda path, trap: path.write_bytes(pickle.dumps(Trap(trap))),
}


def torch_file(path: Path, trap: Path) -> None:
    """A zip as torch.save writes it, whose pickle is a trap."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap(trap), protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def torch_bomb(path: Path, trap: Path) -> None:
    """The same with zeros, compressed: 4 GB in 4 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/version", "3\n")
        with archive.open("archive/data.pkl", "w", force_zip64=True) as file:
            for _ in range(256):
                file.write(bytes(2**24))
