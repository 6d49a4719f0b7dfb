"""What is done with finished files: comparing, telling what they are, other precisions, header fields, skills,
masks, versions, compaction, repair.
"""

from cortiq.edit.requant import requant

__all__ = ["requant"]
