"""Bytes as a table for people: offset, sixteen bytes, their ASCII. Rows of zeros after the first are one ``*``."""

from __future__ import annotations


def hexdump(data: bytes) -> str:
    lines: list[str] = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        if not any(row) and lines:
            if lines[-1] != "*":
                lines.append("*")
            continue
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):47}  {shown}")
    return "\n".join(lines)
