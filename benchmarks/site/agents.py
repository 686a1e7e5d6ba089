"""The workload, registered as any site author would do it."""

from a2a_django import executor
from benchmarks.bench_executor import BenchExecutor

executor("bench")(BenchExecutor)
