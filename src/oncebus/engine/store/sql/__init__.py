"""All SQL of the delivery store: the tables and the statements on them. The rules are in `oncebus.engine.store`."""
