"""What to do about an error of an object store or a catalog, by its exception's name and message."""

import re
from collections.abc import Iterable
from typing import Final

_UNANSWERED: Final = "catalog or storage do not respond"
_BUCKET: Final = (
    "the bucket does not exist: create it, or correct the location of the tables (lake.warehouse, or the "
    "catalog's warehouse)"
)
_REGION: Final = "the bucket is in another region: set lake.s3.region (or AWS_REGION) to the bucket's"
_EXPIRED: Final = (
    "the credentials have expired: renew them where this process reads them; it goes on by itself if they "
    "come from a role or from a profile's credential_process, else restart it"
)
_CLOCK: Final = "this machine's clock and the store's differ too much: synchronize them (NTP)"
_UNKNOWN_KEY: Final = (
    "the store does not know these credentials: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
    "AWS_SESSION_TOKEN, which only keys of a role have, or the profile or role in their place"
)
_NO_CREDENTIALS: Final = (
    "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile "
    "(AWS_PROFILE), or give the machine or pod a role"
)
_NO_REGION: Final = "there is no region: set lake.s3.region or AWS_REGION"
_DENIED: Final = (
    "access denied: the credentials must allow to list, read, write and delete objects at the location of "
    "the tables, and the catalog to create and commit tables"
)
_LOGIN: Final = "the catalog refuses the login: check lake.catalog.token or lake.catalog.credential"
_SLOW_DOWN: Final = "the store asks for fewer requests"
_NO_CONNECTION: Final = (
    "no connection: is the address right (lake.catalog.uri, lake.s3.endpoint), and the server up?"
)

# The first rule that matches the "name: message" of any cause wins. S3's clients keep its error codes to
# themselves: their exceptions have S3's sentences.
_RULES: Final = (
    (r"NoSuchBucket|UnknownStoreException|bucket does not exist|container does not exist", _BUCKET),
    (r"authorization header is malformed|PermanentRedirect|AWSRedirect|Status Code: 301", _REGION),
    (r"must be addressed using the specified endpoint", _REGION),
    (r"token .*expired|ExpiredToken|credentials? .*expired", _EXPIRED),
    (r"RequestTimeTooSkewed|request time and the (current|server'?s) time", _CLOCK),
    (r"InvalidToken|provided token is malformed", _UNKNOWN_KEY),
    (r"InvalidAccessKeyId|access key id you provided|request signature we calculated", _UNKNOWN_KEY),
    (r"Unable to load credentials|NoAuthWithAWS|NoAwsCredentials", _NO_CREDENTIALS),
    (r"Unable to load region", _NO_REGION),
    (r"Access ?Denied|ForbiddenException|Status Code: 403|does not have storage\.\w+\.\w+ access", _DENIED),
    (r"AuthorizationPermissionMismatch|AuthorizationFailure", _DENIED),
    (r"NotAuthorizedException|Status Code: 401", _LOGIN),
    (r"Slow ?Down|reduce your request rate|Status Code: 503", _SLOW_DOWN),
    (r"rateLimitExceeded|Too Many Requests|ServerBusy|exceeded the rate limit", _SLOW_DOWN),
    (r"(Connect|UnknownHost|NoRouteToHost)\w*Exception|Connection refused", _NO_CONNECTION),
)


def find_advice(causes: Iterable[tuple[str, str]]) -> str:
    """Return what an outage is, and what to do; `causes` are (class name, message)."""
    text = "\n".join(f"{name}: {message}" for name, message in causes)
    return next((advice for rule, advice in _RULES if re.search(rule, text, re.IGNORECASE)), _UNANSWERED)
