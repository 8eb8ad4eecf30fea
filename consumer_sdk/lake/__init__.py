"""Writes a consumer's records into lake tables, each exactly once; applications use `LakeWriter`.

`interfaces` has the protocols, `writer` batches and flushes, `offsets` the fence, `schema` columns and
table names, `decoding` the decoders, `formats` Iceberg and Delta, `spark` the session, `verify` the
comparison of tables with the broker.
"""

from trimtab.consumer_sdk.lake.settings import LakeConfig
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

__all__ = ["LakeConfig", "LakeWriter"]
