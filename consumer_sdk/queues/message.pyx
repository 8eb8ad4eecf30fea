"""A message in work: compiled, since one is built, and asked to `ack`, for each that is read."""

cimport cython

from trimtab.common.errors import TrimtabError
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.queues.settlement import (
    ACK_REQUEST, ACKNOWLEDGED, UNSETTLED, SETTLED_OTHERWISE, SettlementRequest, SettlementResult, SettlementAction, check_delay, reason_to_text,
)

cdef unsigned char _ACKNOWLEDGED = ACKNOWLEDGED
cdef unsigned char _UNSETTLED = UNSETTLED
cdef unsigned char _SETTLED_OTHERWISE = SETTLED_OTHERWISE
cdef object _RESULT_DONE = SettlementResult.DONE
cdef object _RESULT_LATE = SettlementResult.LATE
cdef object _RESULT_REPEATED = SettlementResult.REPEATED


@cython.freelist(64)
cdef class QueueMessage:
    """A message in work; `raw` is confluent-kafka's. A redelivered one has a new offset.

    `delivery` counts deliveries, this one included. `deadline` is when it comes back by itself, in
    seconds of the monotonic clock; None: never. Whether it is settled stands on a board, in its
    `batch_index`: messages of a batch may share one.
    """

    cdef readonly object raw
    cdef readonly object delivery
    cdef readonly object deadline
    cdef readonly Py_ssize_t batch_index
    cdef object _settler
    cdef bytearray _states

    def __init__(
        self,
        raw,
        delivery,
        deadline,
        settler,
        bytearray states=None,
        Py_ssize_t batch_index=0,
    ):
        self.raw = raw
        self.delivery = delivery
        self.deadline = deadline
        self.batch_index = batch_index
        self._settler = settler
        self._states = bytearray(1) if states is None else states
        if not 0 <= batch_index < len(self._states):
            raise IndexError(batch_index)

    def ack(self):
        """Say that the message is done with."""
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        cdef bint late = self._is_late()
        self._states[self.batch_index] = _ACKNOWLEDGED  # first: who looks at it becomes attentive before
        if late or self._settler.notify_on_ack:
            self._settler.settle(self, ACK_REQUEST, late)
        return _RESULT_LATE if late else _RESULT_DONE

    def retry(self, delay=0.0):
        """Give the message back, to be delivered again in so many seconds. Raises BadDelay."""
        return self._record_settlement(SettlementRequest(SettlementAction.RETRY, check_delay(delay)))

    def reject(self, reason=""):
        """Give the message up: it goes to the dead-letter topic where there is one.

        An exception may be the reason too: what is kept is its text.
        """
        return self._record_settlement(SettlementRequest(SettlementAction.REJECT, reason=reason_to_text(reason)))

    def extend(self, seconds):
        """Have so many seconds from now on; after the deadline it is too late for that.

        Raises BadDelay.
        """
        said = SettlementRequest(SettlementAction.EXTEND, check_delay(seconds))
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        now = self._settler.now()
        if self.deadline is not None and now > self.deadline:
            return _RESULT_LATE
        self._settler.settle(self, said, False)
        if self.deadline is not None:
            self.deadline = now + said.seconds
        return _RESULT_DONE

    @property
    def settled(self):
        """Whether it has been acknowledged, given back or given up."""
        return self._states[self.batch_index] != _UNSETTLED

    @property
    def partition(self):
        """Number of the partition."""
        return self.raw.partition() or 0

    @property
    def offset(self):
        """Offset in the partition."""
        return self.raw.offset() or 0

    @property
    def topic_partition(self):
        """Topic and partition."""
        return TopicPartition(str(self.raw.topic()), self.partition)

    @property
    def key(self):
        """Key."""
        return self.raw.key()

    @property
    def value(self):
        """Value."""
        return self.raw.value()

    def __repr__(self):
        return f"QueueMessage({self.topic_partition}@{self.offset}, delivery {self.delivery})"

    cdef bint _is_late(self) except -1:
        return self.deadline is not None and self._settler.now() > self.deadline

    cdef object _record_settlement(self, said):
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        cdef bint late = self._is_late()
        self._states[self.batch_index] = _SETTLED_OTHERWISE
        try:
            self._settler.settle(self, said, late)
        except TrimtabError:
            self._states[self.batch_index] = _UNSETTLED
            raise
        return _RESULT_LATE if late else _RESULT_DONE
