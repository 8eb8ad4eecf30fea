"""When a consumer warns of topics that do not exist, and how."""

from trimtab.consumer_sdk.membership.classic.missing_topics import MissingTopics, list_topic_names


def test_a_missing_topic_is_told_once_with_a_near_name() -> None:
    """The topics are listed once; a topic that came and went again is told at once."""
    listings = []

    def list_topics() -> list[str]:
        listings.append(1)
        return ["__oders", "orders", "clicks"]

    topics = MissingTopics("broker:9092", list_topics)
    warning = "topic 'oders' does not exist at broker:9092; did you mean 'orders'?; waiting for it"
    assert [topics.describe_new({"oders"}) for _ in range(3)] == [[warning], [], []]
    assert topics.describe_new(set()) == []
    assert topics.describe_new({"oders"}) == [warning]
    assert len(listings) == 1


def test_without_a_near_name_none_is_suggested() -> None:
    """As for a consumer that may not list the topics."""
    (warning,) = MissingTopics("b:1", list).describe_new(["refunds"])
    assert warning == "topic 'refunds' does not exist at b:1; waiting for it"


def test_a_topic_that_was_created_meanwhile_is_not_told() -> None:
    """The member's metadata may be older than the list; the topic's own name is no hint."""
    listed = ["orders"]
    topics = MissingTopics("b:1", lambda: listed)
    assert topics.describe_new(["orders"]) == []
    listed.clear()
    (warning,) = topics.describe_new(["orders"])
    assert warning == "topic 'orders' does not exist at b:1; waiting for it"


def test_topics_that_cannot_be_listed_are_no_error() -> None:
    """The warning is more important than the suggestion."""
    assert (
        list_topic_names({"bootstrap.servers": "localhost:9092", "group.id": "g", "ssl.key.pem": "x"}) == []
    )
