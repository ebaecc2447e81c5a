"""
A notebook as a script: what is in a queue, by the hour, as a picture. Cells begin with `# %%`.

    python examples/spark/plot.py QUEUE PICTURE.png

The queue is that of packages.toml, which says how to fill it. Needs: pip install 'shmq[spark,demo]'
"""

# %% A session; every cell works in a notebook, too
import sys

import matplotlib as mpl

import shmq

mpl.use("Agg")
import matplotlib.pyplot as plt

queue, picture = sys.argv[1:]
spark = shmq.spark.session()

# %% Lines of a log, as they were put: Kafka's columns
lines = spark.read.format("shmq").option("columns", "value").load(queue)
lines.createOrReplaceTempView("lines")

# %% By the hour
hours = spark.sql("""
    select date_trunc('hour', try_to_timestamp(substr(cast(value as string), 1, 19))) as hour, count(*) as n
    from lines group by 1 order by 1
""").collect()
print(f"{sum(row.n for row in hours):,} lines of {len(hours):,} hours")

# %% The picture
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
axes.bar([str(row.hour) for row in hours[-48:]], [row.n for row in hours[-48:]])
axes.set(ylabel="lines", title=f"{queue}, the last {min(48, len(hours))} hours with any")
axes.tick_params(axis="x", rotation=90)
figure.savefig(picture)
