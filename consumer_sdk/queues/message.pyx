"""A delivered message. Compiled: one is built and acknowledged for each message read."""

cimport cython

from trimtab.common.errors import TrimtabError
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.queues.settlement import (
    ACK_REQUEST, ACKNOWLEDGED, SETTLED_OTHERWISE, UNSETTLED, SettlementAction, SettlementRequest,
    SettlementResult, check_delay, reason_to_text,
)

cdef unsigned char _ACKNOWLEDGED = ACKNOWLEDGED
cdef unsigned char _UNSETTLED = UNSETTLED
cdef unsigned char _SETTLED_OTHERWISE = SETTLED_OTHERWISE
cdef object _RESULT_DONE = SettlementResult.DONE
cdef object _RESULT_LATE = SettlementResult.LATE
cdef object _RESULT_REPEATED = SettlementResult.REPEATED


@cython.freelist(64)
cdef class QueueMessage:
    """A delivered message; `raw` is confluent-kafka's. A redelivery of `kmq` has a new offset.

    `delivery` is the number of deliveries including this one. `deadline` is the time of the
    redelivery if it stays unsettled, in seconds of the monotonic clock, or None without one.
    `states[batch_index]` is its settlement state: the messages of a batch share the array.
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
        """Acknowledge the message: it is processed."""
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        cdef bint late = self._is_late()
        # Before `notify_on_ack` is read: the marker writer sets that before it reads the states,
        # so one of the two sees the other.
        self._states[self.batch_index] = _ACKNOWLEDGED
        if late or self._settler.notify_on_ack:
            self._settler.settle(self, ACK_REQUEST, late)
        return _RESULT_LATE if late else _RESULT_DONE

    def retry(self, delay=0.0):
        """Have the message redelivered after `delay` seconds.

        Raises InvalidDelayError, and UnsupportedQueueOperationError for a delay with `share`.
        """
        return self._record_settlement(SettlementRequest(SettlementAction.RETRY, check_delay(delay)))

    def reject(self, reason=""):
        """Reject the message: it goes to the dead-letter topic if there is one.

        `reason` is stored as text; it may be an exception.
        """
        request = SettlementRequest(SettlementAction.REJECT, reason=reason_to_text(reason))
        return self._record_settlement(request)

    def extend(self, seconds):
        """Move the deadline to `seconds` from now; no effect after the deadline (LATE).

        Raises InvalidDelayError, and UnsupportedQueueOperationError with `share`.
        """
        request = SettlementRequest(SettlementAction.EXTEND, check_delay(seconds))
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        now = self._settler.now()
        if self.deadline is not None and now > self.deadline:
            return _RESULT_LATE
        self._settler.settle(self, request, False)
        if self.deadline is not None:
            self.deadline = now + request.seconds
        return _RESULT_DONE

    @property
    def settled(self):
        """Whether it has been acknowledged, retried or rejected."""
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

    cdef object _record_settlement(self, request):
        if self._states[self.batch_index]:
            return _RESULT_REPEATED
        cdef bint late = self._is_late()
        self._states[self.batch_index] = _SETTLED_OTHERWISE
        try:
            self._settler.settle(self, request, late)
        except TrimtabError:
            self._states[self.batch_index] = _UNSETTLED
            raise
        return _RESULT_LATE if late else _RESULT_DONE
