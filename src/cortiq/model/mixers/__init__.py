"""One file per kind of layer that mixes positions: facts, shape rules, plan ops."""

__all__: list[str] = []
