"""The ops, and the arguments of each: the rows that `codegen/abi.py` lists."""
