"""``speciate`` with a vLLM whose weights can be replaced on a processor, run by vLLM's own interpreter.

On a processor vLLM repacks its weights for the matrix library and drops the originals, so the trainer, which hands over
new ones after every update, finds nothing to write to; on a GPU they stay as they are. Here the library is left out.
"""

import vllm._custom_ops
import vllm.model_executor.layers.utils

from speciate.cli import main

vllm._custom_ops._supports_onednn = False
vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *_: False
main()
