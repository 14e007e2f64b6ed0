"""Training: pre-training, fine-tuning and reinforcement learning, with their losses, advantages and settings."""
