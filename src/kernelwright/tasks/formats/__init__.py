"""Reads tasks from other formats: KernelBench, robust-kbench, CUDABench, folders, JSONL, the Hub."""
