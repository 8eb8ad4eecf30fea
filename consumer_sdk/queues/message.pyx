"""A message in work: compiled, since one is built, and asked to `ack`, for each that is read."""

cimport cython

from trimtab.common.errors import TrimtabError
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.queues.settlement import (
    ACK, ACKNOWLEDGED, OPEN, TOLD, Said, Settlement, Verb, checked, text,
)

cdef unsigned char _ACKNOWLEDGED = ACKNOWLEDGED
cdef unsigned char _OPEN = OPEN
cdef unsigned char _TOLD = TOLD
cdef object _DONE = Settlement.DONE
cdef object _LATE = Settlement.LATE
cdef object _REPEATED = Settlement.REPEATED


@cython.freelist(64)
cdef class Received:
    """A message in work; `raw` is confluent-kafka's. A redelivered one has a new offset.

    `delivery` counts deliveries, this one included. `deadline` is when it comes back by itself, in
    seconds of the monotonic clock; None: never. Whether it is settled stands on a board, in its
    `place`: messages of a batch may share one.
    """

    cdef readonly object raw
    cdef readonly object delivery
    cdef readonly object deadline
    cdef readonly Py_ssize_t place
    cdef object _desk
    cdef bytearray _board

    def __init__(
        self,
        raw,
        delivery,
        deadline,
        desk,
        bytearray board=None,
        Py_ssize_t place=0,
    ):
        self.raw = raw
        self.delivery = delivery
        self.deadline = deadline
        self.place = place
        self._desk = desk
        self._board = bytearray(1) if board is None else board
        if not 0 <= place < len(self._board):
            raise IndexError(place)

    def ack(self):
        """Say that the message is done with."""
        if self._board[self.place]:
            return _REPEATED
        cdef bint late = self._late()
        self._board[self.place] = _ACKNOWLEDGED  # first: who looks at it becomes attentive before
        if late or self._desk.attentive:
            self._desk.settle(self, ACK, late)
        return _LATE if late else _DONE

    def retry(self, delay=0.0):
        """Give the message back, to be delivered again in so many seconds. Raises BadDelay."""
        return self._settle(Said(Verb.RETRY, checked(delay)))

    def reject(self, reason=""):
        """Give the message up: it goes to the dead-letter topic where there is one.

        An exception may be the reason too: what is kept is its text.
        """
        return self._settle(Said(Verb.REJECT, reason=text(reason)))

    def extend(self, seconds):
        """Have so many seconds from now on; after the deadline it is too late for that.

        Raises BadDelay.
        """
        said = Said(Verb.EXTEND, checked(seconds))
        if self._board[self.place]:
            return _REPEATED
        now = self._desk.now()
        if self.deadline is not None and now > self.deadline:
            return _LATE
        self._desk.settle(self, said, False)
        if self.deadline is not None:
            self.deadline = now + said.seconds
        return _DONE

    @property
    def settled(self):
        """Whether it has been acknowledged, given back or given up."""
        return self._board[self.place] != _OPEN

    @property
    def partition(self):
        """Number of the partition."""
        return self.raw.partition() or 0

    @property
    def offset(self):
        """Offset in the partition."""
        return self.raw.offset() or 0

    @property
    def where(self):
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
        return f"Received({self.where}@{self.offset}, delivery {self.delivery})"

    cdef bint _late(self) except -1:
        return self.deadline is not None and self._desk.now() > self.deadline

    cdef object _settle(self, said):
        if self._board[self.place]:
            return _REPEATED
        cdef bint late = self._late()
        self._board[self.place] = _TOLD
        try:
            self._desk.settle(self, said, late)
        except TrimtabError:
            self._board[self.place] = _OPEN
            raise
        return _LATE if late else _DONE
