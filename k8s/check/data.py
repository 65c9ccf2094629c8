"""Upload the toy corpus and task to a bucket: ``python -m k8s.check.data BUCKET``. Safe to repeat."""

import sys
import tempfile
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from tests.tiny import write_tiny


def main(bucket: str) -> None:
    """Create the bucket if it does not exist, and upload the files."""
    store = boto3.client("s3")
    try:
        store.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "404":
            raise
        region = store.meta.region_name
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        store.create_bucket(Bucket=bucket, **where)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        write_tiny(data)
        for file in sorted(data.rglob("*.jsonl")):
            name = file.relative_to(data)
            key = str(name if len(name.parts) > 1 else Path("corpus", name))
            store.upload_file(str(file), bucket, key)
            print(f"s3://{bucket}/{key}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m k8s.check.data BUCKET")
    try:
        main(sys.argv[1])
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"k8s.check.data: {error}; check the keys, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL_S3")
