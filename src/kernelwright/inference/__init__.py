"""Running a small decoder without a serving framework: prompt, tokenizer, forward pass with a cache, batching.

`chat` is the text that a model sees, `tokenizer` turns it into ids, `decoder` computes logits of Llama- and
Qwen2-shaped checkpoints in plain torch, `engine` batches many requests and replaces finished ones. No transformers.
"""
