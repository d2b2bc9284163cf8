"""XLA flags for programs that compile longer than they run, as those of tests and notebooks do.

A training program compiles in a quarter of the time.
"""

from importlib.metadata import version

FLAGS = "--xla_backend_optimization_level=0"
# XLA ends a process that names a flag it does not know: this one is for versions that know it.
if version("jaxlib").startswith("0.10."):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
