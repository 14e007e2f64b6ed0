"""The families at the memory's speed (`Schedule.memory` is `wide`): thin kernels over the headers of `device`."""
