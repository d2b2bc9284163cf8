"""XLA flags for programs that compile longer than they run, as those of tests and notebooks do.

A training program compiles in a quarter of the time. Code is generated in one part: several are for
cores that would else be idle.
"""

from importlib.metadata import version

FLAGS = "--xla_backend_optimization_level=0"
# For a program that runs longer than it compiles; higher levels compile longer for nothing.
# The second is for one that runs much longer, with large arrays.
OPTIMISED = {"xla_backend_optimization_level": 1}
FUSED = OPTIMISED.copy()
# XLA ends a process that names a flag it does not know: these are for versions that know them.
if version("jaxlib").startswith("0.10."):
    FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    FUSED["xla_cpu_use_fusion_emitters"] = True
