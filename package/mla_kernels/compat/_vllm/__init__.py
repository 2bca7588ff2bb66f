"""Classes of vLLM's attention backends; only ``capabilities`` can be imported without vLLM."""
