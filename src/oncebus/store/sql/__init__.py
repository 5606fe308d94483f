"""All SQL of the delivery store: tables and the statements on them. The rules stand outside."""
