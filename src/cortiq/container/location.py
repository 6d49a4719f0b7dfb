"""Names of files that are elsewhere: ``https://``, ``http://``, and ``hf://org/repo/path/file.cmf@revision``.

What is needed to ask the hub is imported when such a name is located, never before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from cortiq import __version__
from cortiq.errors import NetworkError, UsageError

SCHEMES = ("https://", "http://", "hf://")
_HUB_FILE = re.compile(r"hf://(?P<repo>[^/@]+/[^/@]+)/(?P<file>[^@]+)(?:@(?P<revision>.+))?", re.IGNORECASE)
_HUB_KINDS = ("datasets", "spaces", "kernels", "buckets")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a file is.

    ``shown``    the name as it was given, without what may be secret: user, password and query
    ``url``      what to ask
    ``headers``  what to send to this host, and to no other one it points to
    """

    shown: str
    url: str
    headers: Mapping[str, str]


def is_url(name: object) -> bool:
    """Whether ``name`` is a name of a remote file. Nothing else is ever asked for over a network."""
    return isinstance(name, str) and name.lower().startswith(SCHEMES)


def locate(name: str) -> Location:
    """Where the file called ``name`` is; a file of the hub with its address there and the token people have.

    Raises UsageError.url for a name that cannot be meant, NetworkError.offline where HF_HUB_OFFLINE is set.
    """
    shown = _without_secrets(name)
    _check_online(shown)
    if name.lower().startswith("hf://"):
        return _locate_in_hub(name, shown)
    return Location(shown, name.partition("#")[0], {"User-Agent": f"cortiq/{__version__}"})


def check_local(name: str | os.PathLike[str], what: str) -> None:
    """Raise UsageError.remote when ``name`` is a URL; ``what`` is what cannot be done with one."""
    if is_url(name):
        shown = _without_secrets(os.fspath(name))
        raise UsageError(f"{what} takes a file on this machine; download it first", code="remote", path=shown)


def _check_online(shown: str) -> None:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise NetworkError("HF_HUB_OFFLINE is set", code="offline", path=shown)


def _locate_in_hub(name: str, shown: str) -> Location:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined, unused-ignore]

    match = _HUB_FILE.fullmatch(name)
    if match is None or match["repo"].partition("/")[0] in _HUB_KINDS:
        raise UsageError(
            "not the name of a file in a model repository",
            code="url",
            path=shown,
            expected="hf://organization/repository/file.cmf, then @revision or nothing",
            found=shown,
        )
    try:
        url = hf_hub_url(match["repo"], match["file"], revision=match["revision"])
    except HFValidationError as error:
        raise UsageError(f"not a repository: {error}", code="url", path=shown) from error
    return Location(shown, url, build_hf_headers(library_name="cortiq", library_version=__version__))


def _without_secrets(name: str) -> str:
    """``name`` as it may be printed. Raises UsageError.url for one without a host or with an impossible one."""
    try:
        parts = urlsplit(name)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"not a URL: {error}", code="url", found=name.partition("?")[0]) from error
    if not host:
        raise UsageError("a URL without a host", code="url", found=name.partition("?")[0])
    if parts.scheme.lower() == "hf":
        return name
    place = parts.netloc.rpartition("@")[2]
    return SplitResult(parts.scheme, place, parts.path, "", "").geturl()
