#!/bin/sh
# Remove files of packages that nothing loads here: tests, headers, Arrow's network clients, Amazon's other services,
# and onnxruntime's library for other languages (Python's module holds all of it once more).
set -e
find /opt/tlm/lib -type d '(' -name tests -o -name include ')' -prune -exec rm -r {} +
find /opt/tlm/lib '(' -path '*/pyarrow/libarrow*flight*' -o -path '*/pyarrow/libarrow_s3*' ')' -delete
find /opt/tlm/lib -path '*/onnxruntime/capi/libonnxruntime.so*' -delete
find /opt/tlm/lib -path '*/botocore/data/*' -prune -type d ! -name s3 ! -name sts ! -name signin ! -name 'sso*' -exec rm -r {} +
