"""Read-only views of a group for `trimtab top`, `explain`, `plan` and `doctor`."""
