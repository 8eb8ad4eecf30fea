"""A user of the object store whose keys expire, and the files from which clients read them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

USERS_FILE: Final = "users.json"  # versitygw reads it for each request
LIFETIME: Final = timedelta(seconds=20)  # clients read keys anew 15 s before they expire
_SECRET: Final = "not-a-secret-of-anyone-either"  # noqa: S105


class ExpiringUser:
    """A user beside the store's root, with the same rights."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._keys = folder / "keys.json"
        self._profile = folder / "profile"
        self._profile.write_text(f"[default]\ncredential_process = cat {self._keys}\n")
        self._number = 0
        self.expire_keys()
        self.renew_keys()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client that asks a process for the keys."""
        return {"AWS_SHARED_CREDENTIALS_FILE": str(self._profile)}

    def expire_keys(self) -> None:
        """Give the user new keys: the store refuses the old ones from now on."""
        self._number += 1
        user = {"access": self._key, "secret": _SECRET, "role": "admin"}
        _replace(self.folder / USERS_FILE, json.dumps({"accessAccounts": {self._key: user}}))

    def renew_keys(self) -> None:
        """Write the user's keys into the file that the process prints."""
        expiration = (datetime.now(UTC) + LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"Version": 1, "AccessKeyId": self._key, "SecretAccessKey": _SECRET, "Expiration": expiration}
        _replace(self._keys, json.dumps(keys))

    @property
    def _key(self) -> str:
        return f"trimtab-user-{self._number}"


def _replace(file: Path, text: str) -> None:
    """Write a file anew; a reader gets the old text or the new one."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)
