"""
Spark: a queue is read as a table, and what Spark counts goes into another queue, once, also when the batch is repeated.

A stream reads the orders in two runs, as a job that is started twice: the second run begins where the first one ended.
Needs `pip install 'shmq[spark]'`.

Prints:
    run 1: {'ann': 30, 'bob': 20}
    run 2: {'ann': 37, 'bob': 20, 'eve': 5}
    totals were put 4 times
"""

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError:
    raise SystemExit("this example needs Spark: pip install 'shmq[spark]'") from None

import json
import shutil
from pathlib import Path

import shmq

RUNS = [("ann", 10), ("bob", 20), ("ann", 20)], [("eve", 5), ("ann", 7)]


def put_totals(batch, number):
    shmq.spark.write(batch, str(here / "totals"), value="json", txnAppId="totals", txnVersion=number)
    shmq.spark.write(batch, str(here / "totals"), value="json", txnAppId="totals", txnVersion=number)  # passed over


here = Path("spark-example").absolute()  # Spark's processes are in folders of their own
here.mkdir()
spark = shmq.spark.session()
spark.sparkContext.setLogLevel("ERROR")
with shmq.open(here / "orders", codec="json") as orders, shmq.open(here / "totals") as totals:
    told = {}
    for number, run in enumerate(RUNS, start=1):
        orders.put_many([{"user": user, "amount": amount} for user, amount in run])
        rows = (
            spark.readStream.format("shmq")
            .option("value.format", "json")
            .option("startingOffsets", "earliest")
            .schema("user STRING, amount BIGINT")
        )
        sums = rows.load(str(here / "orders")).groupBy("user").sum("amount").toDF("user", "total")
        query = sums.writeStream.outputMode("update").option("checkpointLocation", str(here / "checkpoint"))
        query.trigger(availableNow=True).foreachBatch(put_totals).start().awaitTermination()
        for total in (json.loads(message.payload) for message in totals.reader()):
            told[total["user"]] = total["total"]
        print(f"run {number}: {dict(sorted(told.items()))}")
    print(f"totals were put {len(totals)} times")
spark.stop()
shutil.rmtree(here)
