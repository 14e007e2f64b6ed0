"""Builds and runs a candidate's host code: splitter, builder, extension object, bridge to torch.

`build.build` compiles and runs nothing; `extension.Extension` runs inside the runner only.
"""
