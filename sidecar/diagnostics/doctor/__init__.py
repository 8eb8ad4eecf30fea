"""The checks of `trimtab doctor`."""
