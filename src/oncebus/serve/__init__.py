"""The broker as processes: the gateway, the pipeline, and what starts them and starts them again."""
