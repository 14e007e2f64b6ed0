"""Sets of candidates and kernels that tests and benchmark scripts share."""
