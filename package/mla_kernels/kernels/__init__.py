"""One class per op: a variant bound to a config, which is called on tensors."""
