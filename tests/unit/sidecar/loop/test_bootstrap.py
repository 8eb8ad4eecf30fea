"""What a sidecar logs at its end."""

import pytest

from trimtab.common.errors import SettingError
from trimtab.sidecar.loop.bootstrap import log_clean_end


def test_after_an_error_no_line_hides_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The command prints the reason last; that the sidecar has stopped is told at a clean end only."""
    with caplog.at_level("INFO"), log_clean_end("the sidecar of group g has stopped"):
        pass
    assert caplog.messages == ["the sidecar of group g has stopped"]
    caplog.clear()
    with caplog.at_level("INFO"), pytest.raises(SettingError), log_clean_end("stopped"):
        raise SettingError("the group is a share group")
    assert caplog.messages == []
