"""Classes of vLLM's attention backends; to import one is to import vLLM."""
