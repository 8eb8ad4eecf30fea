"""The requests that the project sends, as tables of fields (`fields`, rule 1).

1. A table begins with the version that Kafka 2.4 speaks, or with the first one of a newer request: brokers of
   all later releases understand it.
2. It ends with the last version whose fields are used; one with another meaning (topics by id) is left out.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.common.kafka_protocol.errors import MalformedMessageError
from trimtab.common.kafka_protocol.fields import Codec, Reader, compile_table

_ANY: Final = 99


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response."""

    name: str
    key: int
    first: int
    last: int
    request: str
    response: str
    flexible: int = 0  # the first version with compact and tagged fields
    is_repeatable: bool = True  # whether twice is as good as once

    def encode_request(self, version: int, number: int, client_id: str, fields: Mapping[str, Any]) -> bytes:
        """Return the bytes of a request, with its size. Raises ValueError and KeyError for wrong fields."""
        name = client_id.encode()
        out = bytearray(struct.pack(f">hhih{len(name)}s", self.key, version, number, len(name), name))
        if version >= self.flexible:
            out.append(0)  # no tagged fields
        self.get_codec(self.request, version)[1](out, fields)
        return struct.pack(">i", len(out)) + out

    def decode_response(self, version: int, data: bytes) -> Any:
        """Return the message of a response without its size and number. Raises MalformedMessageError."""
        reader = Reader(data)
        try:
            if version >= self.flexible and self is not API_VERSIONS:  # read before versions are known
                for _ in range(reader.take_varint()):
                    reader.take_varint()
                    reader.take(reader.take_varint())
            message = self.get_codec(self.response, version)[0](reader)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise MalformedMessageError(f"{self.name} {version}: {error}") from None
        if reader.at != len(data):
            raise MalformedMessageError(f"{self.name} {version}: {len(data) - reader.at} bytes too many")
        return message

    def get_codec(self, table: str, version: int) -> Codec:
        """Return the functions that read and write a table of this request in a version."""
        return compile_table(table, version, flexible=version >= self.flexible)


API_VERSIONS: Final = Api(
    "ApiVersions", 18, 3, 4,
    "client_software_name:string client_software_version:string",
    """error_code:int16 api_keys:[api_key:int16 min_version:int16 max_version:int16] throttle_time_ms:int32
    supported_features:[name:string min_version:int16 max_version:int16]#0 finalized_features_epoch:int64#1=-1
    finalized_features:[name:string max_version_level:int16 min_version_level:int16]#2
    zk_migration_ready:bool#3=false""",
)  # fmt: skip
SOFTWARE: Final = {"client_software_name": "trimtab", "client_software_version": "1"}
SASL_HANDSHAKE: Final = Api(
    "SaslHandshake", 17, 1, 1, "mechanism:string", "error_code:int16 mechanisms:[string]", flexible=_ANY
)
SASL_AUTHENTICATE: Final = Api(
    "SaslAuthenticate", 36, 1, 2,
    "auth_bytes:bytes",
    "error_code:int16 error_message:string? auth_bytes:bytes session_lifetime_ms:int64",
    flexible=2,
)  # fmt: skip
METADATA: Final = Api(
    "Metadata", 3, 9, 12,
    """topics:[topic_id:uuid@10+=zero name:string?]? allow_auto_topic_creation:bool=false
    include_cluster_authorized_operations:bool@-10=false include_topic_authorized_operations:bool=false""",
    """throttle_time_ms:int32 brokers:[node_id:int32 host:string port:int32 rack:string?] cluster_id:string?
    controller_id:int32 topics:[error_code:int16 name:string? topic_id:uuid@10+ is_internal:bool
    partitions:[error_code:int16 partition_index:int32 leader_id:int32 leader_epoch:int32
    replica_nodes:[int32] isr_nodes:[int32] offline_replicas:[int32]] topic_authorized_operations:int32]
    cluster_authorized_operations:int32@-10""",
    flexible=9,
)  # fmt: skip
FIND_COORDINATOR: Final = Api(
    "FindCoordinator", 10, 3, 6,
    "key:string@-3 key_type:int8 coordinator_keys:[string]@4+",
    """throttle_time_ms:int32 error_code:int16@-3 error_message:string?@-3 node_id:int32@-3 host:string@-3
    port:int32@-3 coordinators:[key:string node_id:int32 host:string port:int32 error_code:int16
    error_message:string?]@4+""",
    flexible=3,
)  # fmt: skip
LIST_GROUPS: Final = Api(
    "ListGroups", 16, 3, 5,
    "states_filter:[string]@4+=empty types_filter:[string]@5+=empty",
    """throttle_time_ms:int32 error_code:int16 groups:[group_id:string protocol_type:string
    group_state:string@4+ group_type:string@5+]""",
    flexible=3,
)  # fmt: skip
DESCRIBE_GROUPS: Final = Api(
    "DescribeGroups", 15, 5, 6,
    "groups:[string] include_authorized_operations:bool=false",
    """throttle_time_ms:int32 groups:[error_code:int16 error_message:string?@6+ group_id:string
    group_state:string protocol_type:string protocol_data:string members:[member_id:string
    group_instance_id:string? client_id:string client_host:string member_metadata:bytes
    member_assignment:bytes] authorized_operations:int32]""",
    flexible=5,
)  # fmt: skip
OFFSET_FETCH: Final = Api(
    "OffsetFetch", 9, 6, 9,
    """group_id:string@-7 topics:[name:string partition_indexes:[int32]]?@-7 groups:[group_id:string
    member_id:string?@9+ member_epoch:int32@9+=-1 topics:[name:string partition_indexes:[int32]]?]@8+
    require_stable:bool@7+=false""",
    """throttle_time_ms:int32 topics:[name:string partitions:[partition_index:int32 committed_offset:int64
    committed_leader_epoch:int32 metadata:string? error_code:int16]]@-7 error_code:int16@-7=0
    groups:[group_id:string topics:[name:string partitions:[partition_index:int32 committed_offset:int64
    committed_leader_epoch:int32 metadata:string? error_code:int16]] error_code:int16]@8+""",
    flexible=6,
)  # fmt: skip
CONSUMER_GROUP_HEARTBEAT: Final = Api(
    "ConsumerGroupHeartbeat", 68, 0, 1,
    """group_id:string member_id:string member_epoch:int32 instance_id:string? rack_id:string?
    rebalance_timeout_ms:int32=-1 subscribed_topic_names:[string]? subscribed_topic_regex:string?@1+
    server_assignor:string? topic_partitions:[topic_id:uuid partitions:[int32]]?""",
    """throttle_time_ms:int32 error_code:int16 error_message:string? member_id:string? member_epoch:int32
    heartbeat_interval_ms:int32 assignment:{topic_partitions:[topic_id:uuid partitions:[int32]]}?""",
    is_repeatable=False,
)  # fmt: skip
CONSUMER_GROUP_DESCRIBE: Final = Api(
    "ConsumerGroupDescribe", 69, 0, 1,
    "group_ids:[string] include_authorized_operations:bool=false",
    """throttle_time_ms:int32 groups:[error_code:int16 error_message:string? group_id:string
    group_state:string group_epoch:int32 assignment_epoch:int32 assignor_name:string members:[
    member_id:string instance_id:string? rack_id:string? member_epoch:int32 client_id:string
    client_host:string subscribed_topic_names:[string] subscribed_topic_regex:string?
    assignment:{topic_partitions:[topic_id:uuid topic_name:string partitions:[int32]]}
    target_assignment:{topic_partitions:[topic_id:uuid topic_name:string partitions:[int32]]}
    member_type:int8@1+=-1] authorized_operations:int32]""",
)  # fmt: skip
SHARE_GROUP_DESCRIBE: Final = Api(
    "ShareGroupDescribe", 77, 1, 1,
    "group_ids:[string] include_authorized_operations:bool=false",
    """throttle_time_ms:int32 groups:[error_code:int16 error_message:string? group_id:string
    group_state:string group_epoch:int32 assignment_epoch:int32 assignor_name:string members:[
    member_id:string rack_id:string? member_epoch:int32 client_id:string client_host:string
    subscribed_topic_names:[string]
    assignment:{topic_partitions:[topic_id:uuid topic_name:string partitions:[int32]]}]
    authorized_operations:int32]""",
)  # fmt: skip
DESCRIBE_SHARE_GROUP_OFFSETS: Final = Api(
    "DescribeShareGroupOffsets", 90, 0, 1,
    "groups:[group_id:string topics:[topic_name:string partitions:[int32]]?]",
    """throttle_time_ms:int32 groups:[group_id:string topics:[topic_name:string topic_id:uuid
    partitions:[partition_index:int32 start_offset:int64 leader_epoch:int32 lag:int64@1+=-1
    error_code:int16 error_message:string?]] error_code:int16 error_message:string?]""",
)  # fmt: skip
JOIN_GROUP: Final = Api(
    "JoinGroup", 11, 5, 9,
    """group_id:string session_timeout_ms:int32 rebalance_timeout_ms:int32 member_id:string
    group_instance_id:string? protocol_type:string protocols:[name:string metadata:bytes]
    reason:string?@8+""",
    """throttle_time_ms:int32 error_code:int16 generation_id:int32 protocol_type:string?@7+
    protocol_name:string? leader:string skip_assignment:bool@9+=false member_id:string
    members:[member_id:string group_instance_id:string? metadata:bytes]""",
    flexible=6,
    is_repeatable=False,
)  # fmt: skip
SYNC_GROUP: Final = Api(
    "SyncGroup", 14, 3, 5,
    """group_id:string generation_id:int32 member_id:string group_instance_id:string?
    protocol_type:string?@5+ protocol_name:string?@5+ assignments:[member_id:string assignment:bytes]""",
    """throttle_time_ms:int32 error_code:int16 protocol_type:string?@5+ protocol_name:string?@5+
    assignment:bytes""",
    flexible=4,
    is_repeatable=False,
)  # fmt: skip
HEARTBEAT: Final = Api(
    "Heartbeat", 12, 3, 4,
    "group_id:string generation_id:int32 member_id:string group_instance_id:string?",
    "throttle_time_ms:int32 error_code:int16",
    flexible=4,
)  # fmt: skip
LEAVE_GROUP: Final = Api(
    "LeaveGroup", 13, 3, 5,
    "group_id:string members:[member_id:string group_instance_id:string? reason:string?@5+]",
    """throttle_time_ms:int32 error_code:int16 members:[member_id:string group_instance_id:string?
    error_code:int16]""",
    flexible=4,
    is_repeatable=False,
)  # fmt: skip
OFFSET_COMMIT: Final = Api(
    "OffsetCommit", 8, 7, 9,
    """group_id:string generation_id_or_member_epoch:int32 member_id:string group_instance_id:string?
    topics:[name:string partitions:[partition_index:int32 committed_offset:int64
    committed_leader_epoch:int32=-1 committed_metadata:string?]]""",
    "throttle_time_ms:int32 topics:[name:string partitions:[partition_index:int32 error_code:int16]]",
    flexible=8,
    is_repeatable=False,
)  # fmt: skip
FETCH: Final = Api(
    "Fetch", 1, 11, 12,
    """replica_id:int32=-1 max_wait_ms:int32 min_bytes:int32 max_bytes:int32 isolation_level:int8=0
    session_id:int32=0 session_epoch:int32=-1 topics:[topic:string partitions:[partition:int32
    current_leader_epoch:int32=-1 fetch_offset:int64 last_fetched_epoch:int32@12+=-1
    log_start_offset:int64=-1 partition_max_bytes:int32]]
    forgotten_topics_data:[topic:string partitions:[int32]]=empty rack_id:string=""",
    """throttle_time_ms:int32 error_code:int16 session_id:int32 responses:[topic:string partitions:[
    partition_index:int32 error_code:int16 high_watermark:int64 last_stable_offset:int64
    log_start_offset:int64 aborted_transactions:[producer_id:int64 first_offset:int64]?
    preferred_read_replica:int32 records:bytes?]]""",
    flexible=12,
)  # fmt: skip
DESCRIBE_LOG_DIRS: Final = Api(
    "DescribeLogDirs", 35, 1, 4,
    "topics:[topic:string partitions:[int32]]?",
    """throttle_time_ms:int32 error_code:int16@3+=0 results:[error_code:int16 log_dir:string topics:[
    name:string partitions:[partition_index:int32 partition_size:int64 offset_lag:int64
    is_future_key:bool]] total_bytes:int64@4+=-1 usable_bytes:int64@4+=-1]""",
    flexible=2,
)  # fmt: skip
DESCRIBE_PRODUCERS: Final = Api(
    "DescribeProducers", 61, 0, 0,
    "topics:[name:string partition_indexes:[int32]]",
    """throttle_time_ms:int32 topics:[name:string partitions:[partition_index:int32 error_code:int16
    error_message:string? active_producers:[producer_id:int64 producer_epoch:int32 last_sequence:int32
    last_timestamp:int64 coordinator_epoch:int32 current_txn_start_offset:int64]]]""",
)  # fmt: skip
LIST_TRANSACTIONS: Final = Api(
    "ListTransactions", 66, 0, 0,
    "state_filters:[string]=empty producer_id_filters:[int64]",
    """throttle_time_ms:int32 error_code:int16 unknown_state_filters:[string]
    transaction_states:[transactional_id:string producer_id:int64 transaction_state:string]""",
)  # fmt: skip
DESCRIBE_CONFIGS: Final = Api(
    "DescribeConfigs", 32, 2, 4,
    """resources:[resource_type:int8 resource_name:string configuration_keys:[string]?]
    include_synonyms:bool=false include_documentation:bool@3+=false""",
    """throttle_time_ms:int32 results:[error_code:int16 error_message:string? resource_type:int8
    resource_name:string configs:[name:string value:string? read_only:bool config_source:int8
    is_sensitive:bool synonyms:[name:string value:string? source:int8] config_type:int8@3+
    documentation:string?@3+]]""",
    flexible=4,
)  # fmt: skip
INCREMENTAL_ALTER_CONFIGS: Final = Api(
    "IncrementalAlterConfigs", 44, 0, 1,
    """resources:[resource_type:int8 resource_name:string
    configs:[name:string config_operation:int8 value:string?]] validate_only:bool=false""",
    """throttle_time_ms:int32 responses:[error_code:int16 error_message:string? resource_type:int8
    resource_name:string]""",
    flexible=1,
    is_repeatable=False,
)  # fmt: skip
