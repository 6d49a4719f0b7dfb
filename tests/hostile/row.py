"""The catalogue's form: a row is a kind of damage, its cases are files, its outcomes what reading each must answer.

An outcome is a tier and an answer; a tuple of them must all hold.

    O Bounds.section         opening, and reading what is opened with it, raises exactly this; ``O ok`` opens
    T Parse.vbit_bits        the content check of a tensor raises this, and verifying reports it; ``T ok`` finds nothing
    V HashMismatch.tensor    opens, and verifying reports this and nothing else; ``V ok`` reports nothing
    V warning Parse.alias    opens and verifies, with this among the warnings
    V strict Parse.flags     the only problem of strict verifying
    V values NonFinite.value opens and verifies, with this and nothing else about its values among the warnings;
                             ``V values ok`` says nothing of them
    V require HashMismatch.absent     the only problem when every hash is required
    V raises Changed.file    opens, and verifying itself raises this
    V unhashed header        opens and verifies, with this section reported as without a hash
    R ShapeMismatch.shape    opens, and planning to run the model raises this; ``R ok`` plans it
    S Signature.alg          the command ``verify`` fails with this kind and its exit code
    SI UsageError.key        signing the file with ``seed``, which lies beside it, fails with this; ``SI ok`` signs it
                             without a warning, ``SI warning`` with one
    SH Shard.missing         opening as a model raises this; ``SH ok`` opens
    A UsageError.links       growing the file in place raises this; ``A ok`` grows it
    K BaseMismatch.base      adding ``skill.cmf``, which lies beside the file, raises this; ``K ok`` adds it
    W ok                     copying the open ``source.cmf`` onto the case's path works; else what it raises

A kind without a code stands for any code of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from builders.cmf import Cmf, two_layers
from cortiq.container import File

Outcomes = str | tuple[str, ...]
SAME = "same"
"""As ``raw``: hashes play no part, for the answer comes before they are compared or they are right anyway."""
HEADER_HASH = "O HashMismatch.header"
DIRECTORY_HASH = "O HashMismatch.directory"
TENSOR_HASH = "V HashMismatch.tensor"


@dataclass(frozen=True, slots=True)
class Sparse:
    """A file of ``size`` bytes, zero behind those of ``cmf``."""

    cmf: Cmf
    size: int


Damaged = Cmf | Sparse | bytes
Damage = Callable[[Cmf], Damaged | Iterator[Damaged]]


def untouched(cmf: Cmf) -> Cmf:
    """The base file as it is."""
    return cmf


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged file, or several with the same answer.

    ``damage``    changes the base file; it leaves hashes alone
    ``place``     where the file is opened: given its path, makes what it needs beside it and returns the path to use
    ``expected``  the outcomes of this case where they are not those of its row, ``raw`` likewise
    ``says``      what the error's text must contain, unless hashes answer before the check the row is about
    ``holds``     what must be true of the opened file
    ``during``    called with the path while the file is being verified
    ``deep``      False when hashes of tensors and sections are the damage, so that making them right would undo it
    ``needs``     as in the row
    ``reads``     what is read of the file after opening it; the section ``needs`` is about when not given
    ``skip``      why this machine cannot run the case, None when it can
    ``room``      how many more files the process may open while the case opens a set
    """

    damage: Damage = untouched
    place: Callable[[Path], Path] | None = None
    expected: Outcomes | None = None
    raw: Outcomes | None = None
    says: str = ""
    holds: Callable[[File], object] | None = None
    during: Callable[[Path], None] | None = None
    deep: bool = True
    needs: str | None = None
    reads: str | None = None
    skip: Callable[[], str | None] | None = None
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the catalogue.

    ``cases``     damages, or ``Case`` where more is to be said
    ``expected``  outcomes with every hash made right, so that the check itself must answer; empty for no such variant
    ``raw``       outcomes with the hashes of the undamaged file; empty for no such variant
    ``base``      makes the undamaged file
    ``needs``     the module of ``cortiq.container`` the row waits for: its cases skip until it is there
    ``later``     why no case of the row runs yet, or what of it does not
    """

    id: str
    what: str
    cases: Sequence[Damage | Case] = ()
    expected: Outcomes = ""
    raw: Outcomes = ""
    base: Callable[[], Cmf] = two_layers
    needs: str = ""
    later: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One case of a row in one variant: ``expected`` with all hashes made right, or ``raw``."""

    row: Row
    case: Case
    variant: str
    number: int
    outcomes: tuple[str, ...]
    says: str

    @property
    def needs(self) -> str:
        return self.row.needs if self.case.needs is None else self.case.needs

    @property
    def reads(self) -> str:
        return self.needs if self.case.reads is None else self.case.reads

    @property
    def id(self) -> str:
        return f"{self.row.id}-{self.variant}-{self.number}"


def trials(row: Row) -> Iterator[Trial]:
    """Every case of ``row`` in every variant it has."""
    for number, given in enumerate(row.cases):
        case = given if isinstance(given, Case) else Case(given)
        expected = row.expected if case.expected is None else case.expected
        raw = row.raw if case.raw is None else case.raw
        for variant, outcomes in (("fixed", expected), ("raw", expected if raw == SAME else raw)):
            if outcomes:
                says = case.says if outcomes == expected or not expected else ""
                yield Trial(row, case, variant, number, (outcomes,) if isinstance(outcomes, str) else outcomes, says)


def exists(module: str) -> bool:
    """Whether ``cortiq.container`` has this module."""
    return find_spec(f"cortiq.container.{module}") is not None
