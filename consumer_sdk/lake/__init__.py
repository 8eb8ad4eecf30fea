"""The lake sink: records of a consumer become rows of lake tables, each exactly once.

`LakeWriter` is what an application uses. Inside: values and rules (`progress`, `positions`,
`batches`, `names`, `config`), ports (`ports`), the flush (`fence`, `flush`, `stager`), Spark
(`session`, `decode`, `shape`, `jvm`), and the table formats (`iceberg`, `delta`).
"""

from trimtab.consumer_sdk.lake.settings import LakeConfig
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

__all__ = ["LakeConfig", "LakeWriter"]
