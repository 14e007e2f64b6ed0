"""Fine-tuning on TRL: SFT with our losses, DPO, and evaluation by execution during training."""
