"""PySpark still has each private name that `oncebus.spark.borrowed` uses. No test here starts Spark."""

from __future__ import annotations

import inspect
import pickle
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from oncebus.spark.borrowed import detach_gateway, pickle_function


@pytest.mark.parametrize(
    ("owner", "name"),
    [(SparkSession, "_jsparkSession"), (SparkSession, "_jvm"), (SparkContext, "_jsc"), (SparkContext, "_gateway")],
)
def test_pyspark_has(owner: type, name: str) -> None:
    # The attributes of an object appear in the code that sets them.
    methods = [each for each in vars(owner).values() if inspect.isfunction(each)]
    is_there = hasattr(owner, name) or any(name in each.__code__.co_names for each in methods)
    assert is_there, f"PySpark {pyspark.__version__} no longer has {owner.__name__}.{name}"


@pytest.mark.parametrize(
    ("jar", "owner", "name"),
    [
        ("spark-sql", "org/apache/spark/sql/classic/SparkSession", "sharedState"),
        ("spark-sql", "org/apache/spark/sql/internal/SharedState", "activeStreamingQueries"),
        ("spark-core", "org/apache/spark/SparkContext", "statusTracker"),
        ("spark-core", "org/apache/spark/SparkStatusTracker", "getExecutorInfos"),
        ("spark-core", "org/apache/spark/SparkContext", "statusStore"),
        ("spark-core", "org/apache/spark/status/AppStatusStore", "activeStages"),
        ("spark-core", "org/apache/spark/status/AppStatusStore", "lastStageAttempt"),
        ("spark-core", "org/apache/spark/status/api/v1/StageData", "inputRecords"),
    ],
)
def test_spark_has(jar: str, owner: str, name: str) -> None:
    [path] = (Path(pyspark.__file__).parent / "jars").glob(f"{jar}_2*.jar")
    with zipfile.ZipFile(path) as classes:
        # A class file holds the names of its methods as plain text.
        is_there = f"{owner}.class" in classes.namelist() and name.encode() in classes.read(f"{owner}.class")
    assert is_there, f"Spark {pyspark.__version__} no longer has {owner.replace('/', '.')}.{name}"


def test_pyspark_launches_java_with_proc() -> None:
    from pyspark import java_gateway

    source = inspect.getsource(java_gateway.launch_gateway)
    assert "gateway.proc = proc" in source, (
        f"PySpark {pyspark.__version__} no longer keeps the Java process as `proc` of its gateway"
    )


def test_a_java_that_pyspark_did_not_start_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = object()
    monkeypatch.setattr(SparkContext, "_gateway", foreign)
    assert detach_gateway() is None
    assert SparkContext._gateway is foreign


def test_pyspark_pickles_functions_with_their_code() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert pickle.loads(pickle_function(double))(21) == 42, (
        f"CloudPickleSerializer of PySpark {pyspark.__version__} no longer pickles a function with its code"
    )
