"""The engines that are compared: each module answers jobs on its standard input (bench/side.py), in its own process."""
