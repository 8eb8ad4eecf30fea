"""Identity of Delta's deletion vectors."""

from typing import Any

from trimtab.consumer_sdk.lake.formats.delta.vector_cache import read_vector_id

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


def make_add(**differences: object) -> dict[str, Any]:
    return {"path": "a.parquet", "deletionVector": {**VECTOR, **differences}}


def test_vectors_of_one_file_differ_by_their_offset() -> None:
    """A flush writes the vectors of all its data files into one file."""
    assert read_vector_id(make_add(offset=4)) == read_vector_id(make_add(offset=4))
    others = [
        make_add(offset=44),
        make_add(pathOrInlineDv="cd^-aqEH.-t@S}K{vb[*k^"),
        make_add(storageType="p"),
    ]
    assert len({read_vector_id(add) for add in [make_add(), *others]}) == 4


def test_inline_vectors_have_no_offset() -> None:
    """Their bytes are in the log."""
    inline = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
    assert read_vector_id({"deletionVector": inline}) is not None


def test_a_file_without_deleted_rows_has_no_vector() -> None:
    """Writers leave the field away or set it to null."""
    assert read_vector_id({"path": "a"}) is None
    assert read_vector_id({"path": "a", "deletionVector": None}) is None
