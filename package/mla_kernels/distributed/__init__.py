"""Decode context parallelism over ``torch.distributed``: each rank holds a part of every request's cache.

A rank has some heads of the queries. It gathers the queries of all ranks, attends from all heads to its part of the
cache, and sends each rank the partial results of that rank's heads. ``merge_states`` combines what arrives. vLLM
distributes caches in the same way (``decode_context_parallel_size``).
"""

from mla_kernels.distributed.context_parallel import ContextParallel as ContextParallel
from mla_kernels.distributed.context_parallel import Step as Step
from mla_kernels.distributed.lengths import local_lengths as local_lengths
