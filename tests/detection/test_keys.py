from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.detection import part_of


def test_parts_are_where_spark_puts_the_keys(spark: SparkSession) -> None:
    digests = spark.range(200).select(F.unhex(F.substring(F.sha2(F.col("id").cast("string"), 256), 1, 32)).alias("d"))
    for parts in (1, 2, 7, 256):
        placed = digests.repartition(parts, "d").select("d", F.spark_partition_id().alias("part")).collect()
        halves = np.array([[int.from_bytes(row["d"][:8]), int.from_bytes(row["d"][8:])] for row in placed], np.uint64)
        assert part_of(halves[:, 0], halves[:, 1], parts).tolist() == [row["part"] for row in placed]
