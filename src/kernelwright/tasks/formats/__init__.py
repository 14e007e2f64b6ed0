"""Reads tasks from the formats of others: KernelBench, robust-kbench, CUDABench, folders, JSONL, the Hub."""
