"""Settings from the environment and a `.env` file, and where each of them came from (chapter 01).

The environment beats the file; a blank value counts as not set, in both. One file is read: the nearest
`.env` from the working folder up to the first folder that holds `.git` or `pyproject.toml` (where no folder
does, the working folder alone counts). The home folder's `.env` is left alone, unless it has such a mark.
Nothing is read at import, and `os.environ` is never changed.

    >>> Settings.load(folder="/nowhere", environ={"LLM_TIMEOUT": "30"}).timeout
    30.0
"""

from __future__ import annotations

import difflib
import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from .errors import SettingsError
from .text import BLANKS, KNOWN_KEYS, open_file

NAMES = {
    "LLM_MODEL_ID": "model",
    "LLM_API_KEY": "api_key",
    "LLM_BASE_URL": "base_url",
    "LLM_TIMEOUT": "timeout",
    "SERPAPI_API_KEY": "serpapi_api_key",
    "OPENWEATHER_API_KEY": "openweather_api_key",
    "LOCAL_MODEL_PATH": "local_model_path",
    "HELLO_REACT_CACHE": "cache_folder",
    "SERPAPI_BASE_URL": "serpapi_base_url",
    "OPENWEATHER_BASE_URL": "openweather_base_url",
    "OPEN_METEO_BASE_URL": "open_meteo_base_url",
    "WIKIPEDIA_BASE_URL": "wikipedia_base_url",
}
"""Every name that is read, and the attribute of `Settings` that holds it; `.env.example` explains them."""

LLM_NAMES = ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL")
# Matched against the lower-case value with blanks in place of - and _; no part may backtrack without bound.
_PLACEHOLDER = re.compile(
    r"<.*>|\[.*\]|\$?\{.*\}|.*[\u3400-\u9fff].*"  # <key>, {key}, 你的密钥
    r"|(?:sk )?your(?: .*|.*(?:key|token|secret).*)"  # your-api-key-here, sk-your-key
    r"|(?:[a-z0-9]{1,6} )*[x*.…•]{3,}(?: [x*.…•]+)*"  # sk-xxxx, xxxx-xxxx, sk-...
    r"|(?:sk )?(?:change|replace|insert|fill|enter|paste|put) ?(?:me|it|in|the|api|key|here|this|with)\b.*"
    r"|(?:sk )?(?:(?:my|the|an?|llm|openai|serpapi|openweather) )?api ?key(?: here)?"
    r"|key here|placeholder|todo",
    re.DOTALL,
)
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?|[\da-f.]*:[\da-f:.]*(?:%[\w-]+)?")  # a name, or IPv6
_CALL = re.compile(r"(?i)/(?:chat/completions|completions|responses|(?<=/v\d/)models)$")


def check_key(name: str, value: str) -> str:
    """The key `value` without outer blanks, if it can be one.

    Args:
        name: what the message calls it, such as "LLM_API_KEY".

    Raises:
        SettingsError: it is blank, a sample's placeholder, or holds what no key holds. The key is not shown.
    """
    key = value.strip()
    if not key:
        raise SettingsError(f"{name} is not set: put your key in the environment or in .env.")
    if _is_placeholder(key):
        raise SettingsError(f"{name} still holds a placeholder: fill in your own key.")
    if not re.fullmatch(r"[!#-&(-~]+", key):  # visible ASCII, no quotes: what an HTTP header can carry
        raise SettingsError(f"{name} holds a blank, a quote or another sign that no key has: "
                            "copy the key again, alone, without quotes and without 'Bearer'.")
    KNOWN_KEYS.add(key)
    return key


def check_base_url(value: str, name: str = "LLM_BASE_URL") -> str:
    """The address `value` in one shape: no double or trailing slashes, no call such as `/chat/completions`.

        >>> check_base_url("https://example.com//v1/chat/completions/")
        'https://example.com/v1'

    Raises:
        SettingsError: it is blank or no http address; the message says what is missing.
    """
    url = re.sub("(?i)^(?:https?://)+(?=https?://)", "", value.strip(BLANKS))
    if not url:
        raise SettingsError(f"{name} is not set: put the service's address in the environment or in .env.")
    if _is_placeholder(url):
        raise SettingsError(f"{name} still holds a placeholder: fill in the service's address.")
    shown = without_secrets(url)
    if "://" not in url and not url.lower().startswith(("http:", "https:")):
        raise SettingsError(f"{name} is {shown!r}: https:// is missing in front "
                            "(http:// for a server on your own machine).")
    try:
        parts = urlsplit(url)
        usable = (parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "")
                  and parts.port != 0 and "://" not in parts.path)
    except ValueError:
        usable = False
    if not usable or re.search(rf'[\s\x00-\x1f\x7f<>{{}}"\\{BLANKS}]', url):
        raise SettingsError(f"{name} is {shown!r}: not an address such as https://example.com/v1.")
    path = re.sub("/{2,}", "/", parts.path).rstrip("/")
    return parts._replace(path=_CALL.sub("", path), fragment="").geturl()


@dataclass(frozen=True)
class Settings:
    """All settings; None where one is not set.

    Attributes:
        timeout: seconds to wait for the model's service.
        sources: for each name in `NAMES` "environment", the path of the `.env` file, or "not set".
        env_file: the `.env` file that was read, or None.
        notes: what a person should know, such as a `.env` that was left alone.
    """

    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = field(default=None, repr=False)
    timeout: float | None = None
    serpapi_api_key: str | None = field(default=None, repr=False)
    openweather_api_key: str | None = field(default=None, repr=False)
    local_model_path: str | None = None
    cache_folder: str | None = None
    serpapi_base_url: str | None = field(default=None, repr=False)
    openweather_base_url: str | None = field(default=None, repr=False)
    open_meteo_base_url: str | None = field(default=None, repr=False)
    wikipedia_base_url: str | None = field(default=None, repr=False)
    sources: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    env_file: Path | None = field(default=None, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def load(cls, folder: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings now.

        Args:
            folder: where the search for `.env` begins (the working folder if None).
            environ: the environment (`os.environ` if None).

        Raises:
            SettingsError: the `.env` file can't be read, or LLM_TIMEOUT is no number of seconds.
        """
        environ = os.environ if environ is None else environ
        env_file, notes = _find_env_file(folder)
        in_file, more = _read_env_file(env_file) if env_file else ({}, [])
        values: dict[str, str] = {}
        sources = dict.fromkeys(NAMES, "not set")
        for source, found in ((str(env_file), in_file), ("environment", environ)):  # the later one wins
            for name in NAMES:
                if value := found.get(name, "").strip():
                    values[name], sources[name] = value, source
        KNOWN_KEYS.update(found[name].strip() for found in (environ, in_file) for name in NAMES
                          if name.endswith("_KEY") and name in found)
        timeout = values.pop("LLM_TIMEOUT", None)
        return cls(
            timeout=None if timeout is None else _seconds(timeout),
            sources=sources, env_file=env_file, notes=(*notes, *more),
            **{NAMES[name]: value for name, value in values.items()},
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys that are set: what no message or trace may show."""
        return tuple(key for key in (self.api_key, self.serpapi_api_key, self.openweather_api_key) if key)

    @property
    def missing_llm_names(self) -> tuple[str, ...]:
        """Those of LLM_MODEL_ID, LLM_API_KEY and LLM_BASE_URL that are not set."""
        return tuple(name for name in LLM_NAMES if getattr(self, NAMES[name]) is None)

    @property
    def llm_is_set(self) -> Literal["all", "some", "none"]:
        """Whether the three names of the model's service are set."""
        missing = len(self.missing_llm_names)
        return "all" if missing == 0 else "none" if missing == len(LLM_NAMES) else "some"

    def describe(self) -> str:
        """A table for a person: name, value and origin of each setting; of a key only its length."""
        rows = [("name", "value", "from")]
        for name, attribute in NAMES.items():
            value = getattr(self, attribute)
            shown = "" if value is None else f"{value:g}" if isinstance(value, float) else value
            if shown and name.endswith("_KEY"):
                shown = f"set ({len(shown)} characters)"
            elif name.endswith("_URL"):
                shown = without_secrets(shown)
            rows.append((name, shown, self.sources.get(name, "")))
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        lines = [f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows]
        return "\n".join([*lines, *self.notes])


def _is_placeholder(value: str) -> bool:
    return len(value) <= 80 and bool(_PLACEHOLDER.fullmatch(re.sub("[-_ ]+", " ", value.lower())))


def without_secrets(url: str) -> str:
    """What may be shown of an address, also of a wrong one: no login, no fragment, no value of its query."""
    # Where no port follows the colon, it stands in a login, whose password may hold any sign.
    login = r"(?is)^((?:[a-z][\w+.-]*:/|/)/*|https?:)?(?:[^/?#]*|[^/?#:]*:(?!\d*(?:[/?#]|$)).*)@"
    return re.sub(r"(?<=[?&])([^=&]*=)?[^&]+", r"\1***", re.sub(login, r"\1", url).partition("#")[0])


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SettingsError(f"LLM_TIMEOUT is {value!r}: write seconds as a number above 0, such as 60.")
    return seconds


def _find_env_file(start: str | Path | None) -> tuple[Path | None, list[str]]:
    """The `.env` file to read, if any, and what to tell about the search."""
    try:
        folder = Path(start or os.getcwd()).resolve()
    except OSError:
        return None, ["No .env file was read: the working folder does not exist any more."]
    home = Path(os.path.expanduser("~")).resolve()
    folders = [folder, *folder.parents]
    root = next((one for one in folders if _is_root(one)), folder)
    notes: list[str] = []
    for one in folders[: folders.index(root) + 1]:
        if not os.path.exists(one / ".env"):
            continue
        if one != home or _is_root(home):
            return one / ".env", [f"Read {one / '.env'}.", *notes]
        notes.append(f"{one / '.env'} was left alone, being the home folder's: "
                     "keep your .env in a project's folder.")
    upward = f" and the folders above it, up to {root}" if root != folder else ""
    return None, [*notes, f"No .env file was read; looked in {folder}{upward}."]


def _is_root(folder: Path) -> bool:
    return any(os.path.lexists(folder / mark) for mark in (".git", "pyproject.toml"))


def _read_env_file(path: Path) -> tuple[dict[str, str], list[str]]:
    """Names and values in the file (a line without `=` gives none), and notes on lines that can't be read."""
    from dotenv.parser import parse_stream

    if path.is_dir():
        raise SettingsError(f"{path} is a folder: rename it, the settings are read from a file of that name.")
    try:
        with open_file(path) as file:
            data = file.read()
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror}): check its permissions.") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data:
        raise SettingsError(f"{path} is saved as UTF-16 (or is no text): save it again as UTF-8.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8: save it again as UTF-8.") from None
    values: dict[str, str] = {}
    notes: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        written = binding.original.string
        line = binding.original.line + written[: len(written) - len(written.lstrip())].count("\n")
        near = difflib.get_close_matches(binding.key or "", NAMES, 1, 0.8) if binding.key not in NAMES else []
        if binding.error or (binding.key and binding.value is None):
            notes.append(f"Line {line} of {path} can't be read and was skipped: "
                         "write NAME=value, and close every quote.")
        elif near:
            notes.append(f"Line {line} of {path} sets {binding.key}, which is not read: is it {near[0]}?")
        elif binding.key and binding.value and not re.match(r"[^=]*=[^\S\n]+#", written):
            values[binding.key] = binding.value  # older parsers take "KEY= # note" for a value
    return values, notes
