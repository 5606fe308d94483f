"""Tests that share one broker with a pipeline on Spark, whose start takes many seconds."""
