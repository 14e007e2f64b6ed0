"""Carries out calls of bridged libraries by torch: cuBLAS and cuDNN."""
