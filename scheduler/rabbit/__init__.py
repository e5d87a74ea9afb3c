"""Everything that knows pika."""
