"""
Tables: a queue gives itself to whatever speaks Arrow, and takes what gives itself.

DuckDB asks a queue that is being written; the answer is what was there when it asked. polars, pandas and pyarrow read
one the same way, and `put_arrow` takes their tables.

Prints:
    trades: 3, volume 60
    by key: [(b'ETH', 1), (b'BTC', 2)]
    put as a table: range(3, 5)
    trades now: 5
"""

try:
    import duckdb
except ImportError:
    raise SystemExit("this example needs duckdb and pyarrow: pip install duckdb 'shmq[arrow]'") from None

import shmq

with shmq.open("trades") as queue:
    for key, volume in ((b"BTC", 10), (b"ETH", 20), (b"BTC", 30)):
        queue.put(str(volume).encode(), key=key)

    count, volume = duckdb.sql("select count(*), sum(payload::varchar::int) from queue").fetchall()[0]
    print(f"trades: {count}, volume {volume}")
    by_key = duckdb.sql("select key, count(*) from queue group by key order by 2").fetchall()
    print(f"by key: {by_key}")

    more = duckdb.sql("select 'DOGE'::blob as key, range::varchar as payload from range(2)")
    print(f"put as a table: {queue.put_arrow(more)}")
    print("trades now:", *duckdb.sql("select count(*) from queue").fetchall()[0])

shmq.delete("trades")
