"""Run ``speciate`` in vLLM's environment, with a vLLM whose weights can be replaced on a CPU.

On a CPU vLLM repacks its weights for the matrix library and drops the originals, so the trainer cannot write new ones
after an update; on a GPU the originals stay. This script disables the matrix library.
"""

import vllm._custom_ops
import vllm.model_executor.layers.utils

from speciate.cli import main

vllm._custom_ops._supports_onednn = False
vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *_: False
main()
