"""One small kernel for each opcode, type and modifier, with operands that matter: what a GPU computes, and what we do.

`case.py` says what a case is, `values.py` which operands it gets, `arithmetic.py`, `conversions.py`, `warps.py`,
`memory.py` and `tensor.py` list the cases, `devices.py` runs them, `compare.py` compares, and `record.py` writes down
what a GPU gave.
"""
