import mmap
import os
import re
from pathlib import Path

import pytest

from cortiq.container.huge_pages import HUGE_PAGE
from cortiq.container.mapping import Mapping
from cortiq.container.output import AtomicFile

SIZE = 3 * HUGE_PAGE + 12345


def huge_nbytes(address: int) -> int:
    """How much of the mapping that starts at ``address`` this process has mapped by huge pages."""
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    own = next(entry for entry in entries if entry.startswith(f"{address:x}-"))
    found = re.search(r"^FilePmdMapped: +(\d+) kB$", own, re.MULTILINE)
    assert found
    return int(found[1]) << 10


def read_huge(path: Path) -> int:
    """The same of a file that is mapped and read."""
    mapping = Mapping(os.open(path, os.O_RDONLY))
    try:
        assert sum(mapping.view(0, mapping.size)[:: mmap.PAGESIZE]) >= 0
        return huge_nbytes(mapping.address)
    finally:
        mapping.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files can have huge pages: one written in huge pieces has them."""
    path = tmp_path / "probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(3):
            assert file.write(bytes(HUGE_PAGE)) == HUGE_PAGE
    if read_huge(path) < 3 * HUGE_PAGE:
        pytest.skip("this file system has no huge pages")
    return tmp_path


@pytest.mark.parametrize("step", [4096, 100_003, HUGE_PAGE, SIZE])
def test_a_file_written_in_pieces_of_any_size_is_mapped_by_huge_pages(folder: Path, step: int) -> None:
    data = memoryview(os.urandom(SIZE))
    with AtomicFile(folder / "file") as output:
        output.allocate(SIZE)
        for offset in range(128, SIZE, step):
            output.write_at(offset, data[offset : offset + step])
        output.write_at(0, data[:128])
        output.commit()
    assert (folder / "file").read_bytes() == data
    assert read_huge(folder / "file") >= HUGE_PAGE  # memory in small pieces may deny some
