"""Addresses in messages: their secrets are not told, the rest is."""

from __future__ import annotations

import pytest

from raffed.results.text import names_a_secret, without_secrets

TOLD = {
    "http://me:hidden@host:5000/x": "http://…@host:5000/x",
    "postgresql://me:hid/den@host/db": "postgresql://…@host/db",
    "http://me:hid@den@host": "http://…@host",
    "http://hidden@host/x": "http://…@host/x",
    "s3://KEY:hidden@bucket/a?region=x: no": "s3://…@bucket/a?region=x: no",
    "s3://b/a?access_key=hidden&region=x": "s3://b/a?access_key=…&region=x",
    "s3://b/a?region=x&Secret_Key=hidden": "s3://b/a?region=x&Secret_Key=…",
    "https://h/x?X-Amz-Signature=hidden&a=b": "https://h/x?X-Amz-Signature=…&a=b",
    "(url: /api?token=hidden)": "(url: /api?token=…)",
    "s3://b/x?endpoint_override=http://me:hidden@h": "s3://b/x?endpoint_override=http://…@h",
    "s3://b/x?endpoint_override=http%3A%2F%2Fme%3Ahidden%40h%3A1": (
        "s3://b/x?endpoint_override=http%3A%2F%2F…%40h%3A1"
    ),
}
KEPT = [
    "s3://bucket/a?endpoint_override=minio:9000&scheme=http",
    "http://h/a?design=1",
    "me@x.org said http://h/y",
    "a: b",
]


@pytest.mark.parametrize("text", TOLD)
def test_a_secret_is_not_told(text: str) -> None:
    assert without_secrets(text) == TOLD[text]
    assert "hid" not in without_secrets(text)


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_is_told(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("field", "secret"),
    [("access_key", True), ("SessionToken", True), ("sig", True), ("region", False), ("design", False)],
)
def test_a_field_named_like_a_secret_holds_one(field: str, secret: bool) -> None:
    assert names_a_secret(field) is secret
