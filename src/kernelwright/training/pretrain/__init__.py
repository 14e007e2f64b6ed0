"""Pre-training from scratch: tokenizer, shards, packing, Muon and AdamW."""
