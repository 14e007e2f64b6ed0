"""Training: the model's tokens and shapes, losses, advantages, and the recipes that use them."""
