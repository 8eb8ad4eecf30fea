"""Fuzzing of every decoder: whatever the bytes, nothing but the named error comes out.

A target is a public function `bytes -> None` of a module `targets_*`. It swallows the errors that its
decoder promises and lets every other one through. `SEEDS` of its module names real encodings by target.
"""
