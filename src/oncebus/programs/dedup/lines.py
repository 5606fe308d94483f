"""Lines of JSON as expressions of Spark.

A run copies lines as text: in columns of Spark, numbers lose digits, and a null is the same as a missing field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

# FAILFAST: by default Spark turns malformed lines into rows of nulls, which would lose them silently.
STRICT = {"mode": "FAILFAST"}
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_SHOWN = 80
_FRACTION = r"^-?[0-9]+\.[0-9]+(E-?[0-9]+)?$"


def with_all_digits(schema: T.StructType) -> T.StructType:
    """Return the schema with text in place of numbers that may lose digits: decimals and doubles."""
    return T.StructType([T.StructField(field.name, _with_all_digits(field.dataType)) for field in schema.fields])


def _with_all_digits(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return with_all_digits(kind)
    return T.StringType() if isinstance(kind, T.FractionalType) else kind


def parse_line(line: Column, schema: T.StructType) -> Column:
    """Return the struct of a line. A line that is not one object makes the query fail."""
    is_object = F.is_valid_utf8(line) & line.rlike(r"(?s)^\s*\{.*\}\s*$")
    problem = F.concat(F.lit("The line '"), F.substring(line, 1, _SHOWN), F.lit("' is not an object of JSON in UTF-8."))
    checked = F.when(is_object, line).otherwise(F.raise_error(problem))
    # In an array: of two objects Spark would read the first, and ignore all that comes after it.
    objects = F.from_json(F.concat(F.lit("["), checked, F.lit("]")), T.ArrayType(schema), STRICT)
    return F.when(F.size(objects) == 1, objects[0]).otherwise(F.raise_error(problem))


def check_keys(line: Column, keys: Iterable[Column]) -> Column:
    """Return the line. A key of text that is a number with a fraction makes the query fail.

    Spark turns such a number into text as a double, with at most 17 digits, so different keys would become equal.
    """
    for key in keys:
        is_number = key.rlike(_FRACTION) & ~line.contains(F.concat(F.lit('"'), key, F.lit('"')))
        problem = F.concat(F.lit("A key holds a number like "), key, F.lit(". Write it as text or as a whole number."))
        line = F.when(is_number, F.raise_error(problem)).otherwise(line)
    return line


def with_fields(line: Column, fields: Sequence[Column]) -> Column:
    """Return the line with more fields at its end."""
    if not fields:
        return line
    start = F.regexp_replace(line, r"\s*\}\s*$", "")
    comma = F.when(start.rlike(r"^\s*\{$"), "").otherwise(",")
    more = F.to_json(F.struct(*fields), TIMES | {"ignoreNullFields": "false"})
    return F.concat(start, comma, F.substring(more, 2, 2**31 - 1))
