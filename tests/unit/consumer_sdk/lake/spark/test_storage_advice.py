"""An outage's cause decides what its error says to do."""

import pytest

from trimtab.consumer_sdk.lake.spark.storage_advice import find_advice

S3 = "software.amazon.awssdk.services.s3.model.S3Exception"


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        (
            "software.amazon.awssdk.services.s3.model.NoSuchBucketException",
            "The specified bucket does not exist (Service: S3, Status Code: 404, Request ID: 1)",
            "create it",
        ),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException", "`s3a://lake/': does not exist", "create it"),
        (S3, "The authorization header is malformed; the region 'us-east-1' is wrong", "lake.s3.region"),
        (S3, "The provided token has expired. (Service: S3, Status Code: 400, Request ID: 1)", "renew them"),
        (S3, "The difference between the request time and the server's time is too large.", "clock"),
        (S3, "The request signature we calculated does not match the signature you provided.", "AWS_SECRET"),
        (
            "software.amazon.awssdk.core.exception.SdkClientException",
            "Unable to load credentials from any of the providers in the chain",
            "AWS_PROFILE",
        ),
        (S3, "Access Denied (Service: S3, Status Code: 403, Request ID: 1)", "write and delete objects"),
        (S3, "Please reduce your request rate. (Service: S3, Status Code: 503)", "fewer requests"),
        ("org.apache.hc.client5.http.HttpHostConnectException", "Connect to x failed", "lake.catalog.uri"),
        ("java.sql.SQLException", "database is locked", "do not respond"),
    ],
)
def test_an_outage_says_what_to_do(name: str, message: str, advice: str) -> None:
    """By the sentences of S3, and by the names of the clients' exceptions."""
    causes = [("org.apache.spark.SparkException", "Job aborted"), (name, message)]
    assert advice in find_advice(causes)
