"""Fine-tuning on TRL: SFT with our losses, DPO, evaluation by execution meanwhile."""
