"""How a candidate's text becomes something that runs: splitter, builder, extension object, bridge to torch.

`build.build` compiles and runs nothing; `extension.Extension` runs inside the runner only.
"""
