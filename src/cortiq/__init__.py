"""cortiq: the Cortiq Model Format (CMF v2) as a file, a converter and an engine."""
