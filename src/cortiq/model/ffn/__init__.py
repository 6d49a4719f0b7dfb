"""One file per kind of feed-forward network: facts, shape rules, plan ops."""

__all__: list[str] = []
