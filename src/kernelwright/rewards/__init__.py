"""Rewards: turn an evaluation into a number with its parts.

    reward = load_reward("kevin")(evaluation)

`functions` holds the formulas, `opinion` a reward from a language model's opinion.
"""

from kernelwright.rewards.functions import BASELINES, REWARDS, Reward, RewardFunction, load_reward

__all__ = ["BASELINES", "REWARDS", "Reward", "RewardFunction", "load_reward"]
