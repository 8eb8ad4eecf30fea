"""The thread of commits ends with what it has taken, or is left behind."""

from threading import Event

from trimtab.consumer_sdk.membership.broker_assigned.commit_thread import CommitThread


def test_jobs_that_were_taken_are_carried_out_in_order() -> None:
    """Later ones are refused."""
    thread, done = CommitThread(), list[int]()
    for number in range(3):
        assert thread.submit(lambda number=number: done.append(number))
    thread.end(timeout=10)
    assert done == [0, 1, 2]
    assert not thread.submit(lambda: done.append(3))


def test_a_job_without_an_end_is_left_behind() -> None:
    """A commit to a silent coordinator holds up neither `close` nor the end of the process."""
    thread, answered = CommitThread(), Event()
    thread.submit(lambda: (answered.wait(10), None)[1])
    thread.end(timeout=0.01)
    assert thread._thread.daemon
    assert thread._thread.is_alive()
    answered.set()
    thread._thread.join(10)
