"""Reinforcement learning: rollouts, rewards, advantages, the clipped loss, and the loop that resumes."""
