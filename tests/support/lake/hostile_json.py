"""JSON values that tried to end the sink, and one that fits."""

DIGITS = b"9" * 2000
# Each alone would keep Spark's parser busy for a minute or more.
HUGE_DECIMALS = [
    b'{"p": 1e99999999}',
    b'{"p": -1.5E-99999999}',
    b'{"p": 0e99999999}',
    b'{"p": 1e99999999',
    b"{'p': '1e99999999'}",
    b'{"\\u0070": 1e99999999}',
    b'{"p": "1\\u0065+\\u00399999999"}',
    b'{"p": "1,0e9,9,9,9,9,9,9,9"}',
    '{"p": "\u0661e\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669"}'.encode(),
    b'{"p": "%s"}' % (b"9" * 1_000_000),
    b'{"more": [null,1e99999999,1]}',
    b'{"prices": {"a": 1, "b": 1e99999999}}',
    b'{"p": 1, "p": 1e99999999, "name": "12e3456"}',
    b'{"p": 1e99999999, "p": 1}',
    b'{"lines": [{"p": 1e99999999}, 5]}',
    b'{"lines": [{"p": 1e99999999}], "lines": 5}',
]
HOSTILE = [
    *HUGE_DECIMALS,
    b'{"id": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"name": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    b'{"x": ' + b"[" * 100_000,
    *(b'{"%s": %s}' % (name, DIGITS) for name in (b"id", b"d", b"p", b"name", b"at", b"day", b"x")),
    *(b'{"%s": 1e%s}' % (name, b"9" * 9) for name in (b"id", b"n", b"d", b"f", b"p", b"at", b"x")),
    *(
        b'{"%s": %s}' % (name, x)
        for name in (b"d", b"n", b"p")
        for x in (b"NaN", b"-Infinity", b'"Infinity"')
    ),
    *(
        b'{"%s": "%s"}' % (name, time)
        for name in (b"at", b"day")
        for time in (
            b"+294248-01-01T00:00:00Z",
            b"-290309-12-21T00:00:00Z",
            b"999999999-01-01",
            b"+9999999999-01-01",
            b"2024-02-30",
            b"0000-00-00",
            b"1970-01-01T00:00:00+99:99",
            b"epoch",
            DIGITS,
        )
    ),
    b'{"s": {"y": "+294248-01-01T00:00:00Z"}}',
    b'{"at": 9223372036854775807}',
    b'{"at": 1e300}',
    b'{"day": 2147483648}',
    b'{"p": 1e2147483647}',
    b'{"p": 1e-2147483648}',
    b'{"b": "not base64!"}',
    b'{"m": {"k": 1, "k": 2}}',
    b'{"id": 1, "id": 2, "ID": 3}',
    b'{"name": "\\ud800"}',
    b'{"\\u0000": "\x00"}',
    b"\xef\xbb\xbf{}",
    '{"id": 1}'.encode("utf-16"),
    '{"id": 1}'.encode("utf-32"),
    b'{"' + b"k" * 60_000 + b'": 1}',
    b'{"name": "' + b"v" * 21_000_000 + b'"}',
]


GOOD = (
    b'{"id": 7, "n": 1, "d": 1.5, "name": "x", "at": "2024-05-06T07:08:09Z", "day": "2024-05-06", '
    b'"p": 12.34, "b": "AAEC", "t": true, "m": {"k": 1}, "a": [{"x": 1}], "s": {"y": null}}'
)
