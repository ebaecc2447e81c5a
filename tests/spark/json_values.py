"""Values in JSON, and types of columns that they may be read into: all with all, for `from_json` and for the source."""

from __future__ import annotations

import pyarrow as pa

ZONE = "America/New_York"
TIME = pa.timestamp("us", "UTC")
SOME = pa.struct([("b", pa.int64()), ("c", pa.string())])
TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(5,2)": pa.decimal128(5, 2),
    "DECIMAL(38,0)": pa.decimal128(38, 0),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIME,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "STRUCT<b BIGINT, c STRING>": SOME,
    "STRUCT<d STRUCT<b BIGINT, t TIMESTAMP>, e BIGINT>": pa.struct(
        [("d", pa.struct([("b", pa.int64()), ("t", TIME)])), ("e", pa.int64())]
    ),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "ARRAY<DATE>": pa.list_(pa.date32()),
    "ARRAY<STRUCT<b BIGINT, c STRING>>": pa.list_(SOME),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
    "MAP<STRING, STRUCT<b BIGINT>>": pa.map_(pa.string(), pa.struct([("b", pa.int64())])),
}
VALUES = [
    *("null", "true", "false"),
    *("0", "1", "-0", "5", "-5", "127", "-128", "-129", "256", "32767", "32768", "65535", "-32769", "2147483648"),
    *("253402300799", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "12345678901234567890123"),
    *("1.0", "1.5", "1.50", "-0.0", "0.10", "1e2", "1E2", "1e-9", "1.0e5", "123456789.125", "1e7", "1e-3", "0.00012"),
    *("1.555", "1.545", "-1.545", "999.99", "999.994", "999.995", "1234", "1e39", "1e400", "-1e400", "1e-400"),
    *("16777217", "0.1", "123456789012345678901234567890", "1.7976931348623157e308", "4.9e-324"),
    *("NaN", "Infinity", "-Infinity"),
    *('"NaN"', '"Infinity"', '"+Infinity"', '"-Infinity"', '"INF"', '"+INF"', '"-INF"', '"nan"'),
    *('""', '" "', '"x"', '"1"', '" 1"', '"1 "', '"+1"', '".5"', '"5."', '"1.5"', '"1.555"', '"1e2"', '"0x1"', '"1_0"'),
    *('"1,234.5"', '"true"', '"null"', '"\\u0041\\n\\u0000"', '"\\/"', '"\\ud83d\\ude00"', '"äöü"', '"{}"', '"[1]"'),
    *('"aGk="', '" aGk="', '"aGk= "', '"hi"', '"aGk"', '"aGkx"', '"a-_="', '"!!!!"', '"aG\\nk="', '"YWJj"'),
    *('"2013-01-01"', '"2013-1-1"', '"2013"', '"2013-01"', '" 2013-01-01 "', '"+2013-01-01"', '"2013-13-01"'),
    *(
        '"2013-02-30"',
        '"2013-02-29"',
        '"2012-02-29"',
        '"2013-01-01x"',
        '"2013-01-01 x"',
        '"0001-01-01"',
        '"9999-12-31"',
    ),
    *('"2013-01-01 05:00:00"', '"2013-01-01T05:00:00"', '"2013-01-01T05"', '"2013-01-01T5:6:7"', '"2013-01-01T5:00"'),
    *(
        '"2013-01-01T05:00:00Z"',
        '"2013-01-01T05:00:00+01:00"',
        '"2013-01-01T05:00:00-0800"',
        '"2013-01-01T05:00:00-08"',
    ),
    *('"2013-01-01T05:00:00+1"', '"2013-01-01T05:00:00GMT+1"', '"2013-01-01T05:00:00 UTC"', '"2013-01-01T"'),
    *('"2013-01-01T05:00:00 Europe/Berlin"', '"2013-07-01T05:00:00 Europe/Berlin"', '"2013-01-01T05:00:00 Nowhere/At"'),
    *(
        '"2013-01-01T05:00:00.1"',
        '"2013-01-01T05:00:00.123456789Z"',
        '"2013-01-01T05:00:00."',
        '"2013-01-01T05:00:00z"',
    ),
    *('"2013-01-01T24:00:00Z"', '"2013-01-01T05:60:00Z"', '"2013-01-01T05:00:60Z"', '"2013-01-01t05:00:00Z"'),
    *('"2013-03-10T02:30:00"', '"2013-11-03T01:30:00"', '" 2013-01-01T05:00:00Z "', '"2013-01-01T05:00:00 PST"'),
    *('"1969-12-31T23:59:59.999999Z"', '"1600-02-29T00:00:00Z"', '"0001-01-02T00:00:00Z"', '"9999-12-31T23:59:59Z"'),
    *("[]", "[null]", "[1]", "[1,2]", '[1,"x",3]', "[[1]]", "[1.0]", '["2013-01-01",null]', '["x"]', '[1, "\\n" ]'),
    *('[{"b":1}]', '[{"b":"x","c":"y"},{"b":1}]', '[{"b":1},5]', "[null,{}]", '[{"c":[1,{"x":2.50}]}]'),
    *(
        "{}",
        "{ }",
        '{"b":1}',
        '{"b":1,"c":"y","q":[{}]}',
        '{"b":"x","c":"y"}',
        '{"c":5}',
        '{"c":{"x" : 1}}',
        '{"b":null}',
    ),
    *(
        '{"d":{"b":1,"t":"2013-01-01T05:00:00Z"},"e":2}',
        '{"d":{"b":"x","t":5},"e":2}',
        '{"d":5,"e":2}',
        '{"d":null,"e":"x"}',
    ),
    *('{"x":{"b":"q"},"y":{"b":1}}', '{"x":{}}', '{"x":null}', '{"x":1,"y":"z"}', '{"x":[true,null,"\\""]}', '{"ä":1}'),
]

OTHERWISE = {
    ("STRING", "4.9e-324"): "Java 17 has another shortest form of it",
    ("DECIMAL(38,0)", '"1,234.5"'): "thousands are read, but not where a DECIMAL has a scale",
    ("DATE", '"1"'): "days since 1970, a relic of Spark 1.5",
    ("DATE", '"+1"'): "likewise",
    ("TIMESTAMP", "9223372036854775807"): "it overflows",
    ("TIMESTAMP", '"2013-01-01T05:00:00 PST"'): "Java's own short names of zones",
    **{("BINARY", value): "the rest of the object is lost" for value in ('"+Infinity"', '"x"', '"1"', '" 1"', '"\\/"')},
}
"""What `from_json` makes of these is not what stands there, or not all of it; here they are null, the rest is not."""
WHOLE = [
    *(b"null", b"7", b"[1]", b'[{"c0":1}]', b'"x"', b"no json", b'{"c4":1', b'"c4":1}', b'{"c4":1,}', b"{c4:1}"),
    *(b'{"c4":1/*c*/}', b"\x00\xff", b"[]", b"{}", b'{"C4":1}', b'{"c4":null}', b'\n{"c4":1}\t', b'{"\\u00634":1}'),
    *(b'{"c4":1,"z":', b'{"z":1,"q":{"x":[}', b'{"c4":1,"q":NaN}', b'{"c4":1,"c4":2}', b'{"z":1,"c4":1 x}'),
    *(b'{"c4":+1}', b'{"c4":01}', b'{"c4":.5}', b'{"c6":5.}', b'{"c9":"\\x"}', b'{"c9":"\t"}', b'{"c9":"a\nb"}'),
    *(b'{"c4":9223372036854775808,"z":1}', b'{"c4":"x","z":1}', b'{"c4":1,"c9":7,"c6":"x","z":[1]}'),
]
STRICTER = [
    *(b"", b" ", b"{'c4':1}", b'{"c4":1}{"c4":2}', b'{"c4":1},"x":2', b'{"c4":1}\n{"c4":2}', b'{"c4":1} x'),
    *(b'{"c9":"\xff"}', b'{"c9":"\\ud800"}'),
]
"""No JSON, or no text: `from_json` gives no row, or the first object alone, or `?` in place of what it cannot read."""
