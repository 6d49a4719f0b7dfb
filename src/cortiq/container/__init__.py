"""The bytes of CMF files: sections, tensors, masks, skills, sets; reading, writing, growing, verifying (SPEC 1-10)."""

from cortiq.container.arch import Arch
from cortiq.container.blob_layout import BlobLayout, record_layout
from cortiq.container.file import File
from cortiq.container.finding import Check, Finding
from cortiq.container.growth import Change, grow, grow_by
from cortiq.container.header import QUANT_TYPES, Header
from cortiq.container.locking import InPlace
from cortiq.container.mask_meta import MaskInfo, Quality
from cortiq.container.masks import Mask, MaskSet, encode_masks, new_mask
from cortiq.container.opening import open
from cortiq.container.reader import open_single
from cortiq.container.section_checks import check_index, check_masks, check_skills
from cortiq.container.skill_file import SkillFile, check_base, skill_file
from cortiq.container.skill_records import Selection, Skill
from cortiq.container.skills import Skills
from cortiq.container.sparse_index import SparseIndex
from cortiq.container.tensor import Tensor, TensorEntry
from cortiq.container.verify import Report, verify
from cortiq.container.writer import TensorSpec, copy, write_file

__all__ = [
    "QUANT_TYPES",
    "Arch",
    "BlobLayout",
    "Change",
    "Check",
    "File",
    "Finding",
    "Header",
    "InPlace",
    "Mask",
    "MaskInfo",
    "MaskSet",
    "Quality",
    "Report",
    "Selection",
    "Skill",
    "SkillFile",
    "Skills",
    "SparseIndex",
    "Tensor",
    "TensorEntry",
    "TensorSpec",
    "check_base",
    "check_index",
    "check_masks",
    "check_skills",
    "copy",
    "encode_masks",
    "grow",
    "grow_by",
    "new_mask",
    "open",
    "open_single",
    "record_layout",
    "skill_file",
    "verify",
    "write_file",
]
