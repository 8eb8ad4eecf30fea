"""Writes a consumer's records into lake tables, each exactly once; applications use `LakeWriter`.

`read` and `LakeReader` return the rows of a table and the records that it does not have yet.

`interfaces` has the protocols, `writer` batches and flushes, `offsets` the fence, `schema` columns and
table names, `decoding` the decoders, `formats` Iceberg and Delta, `spark` the session, `verify` the
comparison of tables with the broker, `bridge` the reader.
"""

from typing import TYPE_CHECKING

from trimtab.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.bridge.lake_reader import LakeReader, read
    from trimtab.consumer_sdk.lake.bridge.lake_rows import LakeRows
    from trimtab.consumer_sdk.lake.options.settings import LakeConfig
    from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

__all__ = ["LakeConfig", "LakeReader", "LakeRows", "LakeWriter", "read"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("LakeReader", "read"), "trimtab.consumer_sdk.lake.bridge.lake_reader"),
        "LakeRows": "trimtab.consumer_sdk.lake.bridge.lake_rows",
        "LakeConfig": "trimtab.consumer_sdk.lake.options.settings",
        "LakeWriter": "trimtab.consumer_sdk.lake.writer.writer",
    },
)
