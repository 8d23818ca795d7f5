#!/bin/sh
# Prints the lines of all logs by time. Each log is in the order of time, and a line begins with its time.
cd "$(dirname "$0")/.." || exit 1
LC_ALL=C exec sort -m logs/*.log
