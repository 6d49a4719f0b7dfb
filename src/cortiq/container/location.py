"""Names of files that are elsewhere: ``https://``, ``http://``, and ``hf://org/repo/path/file.cmf@revision``.

What is needed to ask the hub is imported when such a name is located, never before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from cortiq import __version__
from cortiq.errors import NetworkError, UsageError

SCHEMES = ("https://", "http://", "hf://")
_HUB_FILE = re.compile(r"hf://(?P<repo>[^/@]+/[^/@]+)/(?P<file>[^@]+)(?:@(?P<revision>.+))?", re.IGNORECASE)
_HEADERS: Mapping[str, str] = MappingProxyType({"User-Agent": f"cortiq/{__version__}"})
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
    return Location(shown, name.partition("#")[0], _HEADERS)


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
    from huggingface_hub import constants, get_token, hf_hub_url
    from huggingface_hub.errors import HFValidationError

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
    # Not the library's own headers: for them it asks the hub which programs it should name.
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return Location(shown, url, _HEADERS if token is None else {**_HEADERS, "Authorization": f"Bearer {token}"})


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
