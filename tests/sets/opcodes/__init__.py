"""One small kernel for each opcode, type and modifier, with chosen operands, to compare a GPU with the machine.

`case.py` defines a case, `values.py` its operands. `arithmetic.py`, `conversions.py`, `warps.py`, `memory.py` and
`tensor.py` list the cases, `devices.py` runs them, `compare.py` compares, and `record.py` records a GPU's results.
"""
