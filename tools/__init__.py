"""Generators and checks of the files in this repository; not part of the wheel."""
