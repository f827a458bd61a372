"""A small world, its text, a tokenizer and a tiny GPT: what the executor cuts into stages and runs."""
