"""AMQP code of the sidecar, based on pika."""
