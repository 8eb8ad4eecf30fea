"""Builds the packages of a release and tries them where no compiler is: `make wheels`."""
