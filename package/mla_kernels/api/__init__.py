"""What users call: ``lookup``, and the ops in one call, whose kernel is looked up from the tensors, and cached.

A tensor is a torch tensor, a NumPy array or another object that speaks DLPack; outputs are allocated in the framework
and on the device of the first argument unless given. ``Packed`` arguments are one tensor of ``d_qk``-wide rows, or a
tuple of latent and rope, such as ``[..., 512]`` and ``[..., 64]``. A ``uint8`` cache has the format that the width of
its rows says: 656 is ``fp8_ds_mla``, 576 ``e4m3``. Every op takes ``workspace`` (``uint8``, at least
``kernel.workspace_size(...)`` bytes; allocated unless given), ``stream`` (a CUDA stream's address; by default the
framework's current one) and ``check`` (read the device's values and refuse bad ones before the launch; a CPU always
does). Errors are those of ``mla_kernels.errors``: an ``InvalidArgumentError`` names the argument, and nothing has
then been written.
"""
