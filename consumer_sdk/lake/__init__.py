"""Writes a consumer's records into lake tables, each exactly once; applications use `LakeWriter`.

`read` and `LakeReader` return the rows of a table and the records that it does not have yet.

`interfaces` has the protocols, `writer` batches and flushes, `offsets` the fence, `schema` columns and
table names, `decoding` the decoders, `formats` Iceberg and Delta, `spark` the session, `verify` the
comparison of tables with the broker, `bridge` the reader.
"""

from trimtab.consumer_sdk.lake.bridge.lake_reader import LakeReader, read
from trimtab.consumer_sdk.lake.bridge.lake_rows import LakeRows
from trimtab.consumer_sdk.lake.settings import LakeConfig
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

__all__ = ["LakeConfig", "LakeReader", "LakeRows", "LakeWriter", "read"]
