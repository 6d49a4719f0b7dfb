"""What runs a model: sequences, generation, sampling, perplexity, throughput."""

__all__: list[str] = []
