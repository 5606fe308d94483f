"""What an operator watches: the broker's metrics and its health."""
