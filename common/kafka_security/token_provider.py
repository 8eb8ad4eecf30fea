"""kafka-python's source of SASL OAUTHBEARER tokens; apart from `tokens`, which needs no kafka-python."""

from kafka.net.sasl.oauth import (
    AbstractTokenProvider,  # pyright: ignore[reportMissingImports] # pyright knows v2 only
)

from trimtab.common.kafka_security.tokens import CachedToken


class CachedTokenProvider(CachedToken, AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """Token provider for kafka-python; caches the token until shortly before its expiry."""
