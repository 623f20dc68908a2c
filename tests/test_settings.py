"""Settings: where they are looked for, what wins, what is refused, and that no key is shown."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hello_react import settings as module
from hello_react.errors import SettingsError
from hello_react.settings import NAMES, Settings, check_base_url, check_key, open_file, without_secrets

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder inside a home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    folder = tmp_path / "code" / "project"
    folder.mkdir(parents=True)
    return folder


def write_env(folder: Path, content: str | bytes) -> Path:
    path = folder / ".env"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def load(folder: Path, **environ: str) -> Settings:
    return Settings.load(folder, environ)


def test_docstring_examples() -> None:
    assert doctest.testmod(module).failed == 0


def test_env_example_lists_exactly_the_documented_names() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+)=$", text, re.MULTILINE) == list(NAMES)


def test_every_name_has_its_attribute() -> None:
    values = dict.fromkeys(NAMES, "7")
    settings = Settings.load("/nowhere", values)
    for attribute in NAMES.values():
        assert getattr(settings, attribute) in ("7", 7.0)
    assert set(settings.sources) == set(NAMES)


def test_importing_reads_and_imports_nothing(project: Path) -> None:
    write_env(project, "LLM_API_KEY=from-the-file\n")
    code = ("import sys, os; before = dict(os.environ); from hello_react.settings import Settings;"
            "assert not any(name.split('.')[0] == 'dotenv' for name in sys.modules);"
            "assert Settings.load().api_key == 'from-the-file'; assert dict(os.environ) == before")
    environ = {name: value for name, value in os.environ.items() if name not in NAMES}
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True,
                   env={**environ, "PYTHONPATH": str(ROOT)})


# Where .env is looked for


def test_nothing_set(project: Path) -> None:
    settings = load(project)
    assert settings == Settings()
    assert settings.env_file is None
    assert set(settings.sources.values()) == {"not set"}
    assert str(project) in settings.describe()
    assert "No .env file" in settings.describe()


def test_working_folder_is_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_env(project, "LLM_MODEL_ID=small\n")
    monkeypatch.chdir(project)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    settings = Settings.load()
    assert settings.model == "small"
    assert settings.env_file == path
    assert settings.sources["LLM_MODEL_ID"] == str(path)


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_looked_up_to_the_marked_folder_and_not_above(project: Path, mark: str) -> None:
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    write_env(project.parent, "LLM_MODEL_ID=above\n")
    (project / mark).touch()
    settings = load(deep)
    assert settings.model is None
    assert str(project) in settings.describe()
    path = write_env(project, "LLM_MODEL_ID=project\n")
    assert load(deep).env_file == path


def test_nearest_wins_and_one_file_only(project: Path) -> None:
    (project / ".git").mkdir()
    deep = project / "deep"
    deep.mkdir()
    write_env(project, "LLM_MODEL_ID=outer\nLLM_TIMEOUT=5\n")
    write_env(deep, "LLM_MODEL_ID=inner\n")
    settings = load(deep)
    assert settings.model == "inner"
    assert settings.timeout is None


def test_without_a_mark_only_the_working_folder(project: Path) -> None:
    write_env(project.parent, "LLM_MODEL_ID=stray\n")
    assert load(project).model is None


def test_home_folder_is_left_alone(project: Path, tmp_path: Path) -> None:
    write_env(tmp_path, "LLM_MODEL_ID=home\n")
    assert load(project).model is None
    settings = load(tmp_path)
    assert settings.model is None
    assert any("home folder" in note and str(tmp_path / ".env") in note for note in settings.notes)
    assert "home folder" in settings.describe()


def test_home_folder_below_a_marked_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    (tmp_path / ".git").mkdir()
    write_env(home, "LLM_MODEL_ID=home\n")
    assert load(project).model is None
    path = write_env(tmp_path, "LLM_MODEL_ID=top\n")
    settings = load(project)
    assert settings.model == "top"
    assert settings.env_file == path
    assert any("home folder" in note for note in settings.notes)


def test_marked_home_folder_counts(project: Path, tmp_path: Path) -> None:
    write_env(tmp_path, "LLM_MODEL_ID=home\n")
    (tmp_path / ".git").mkdir()
    assert load(project).model == "home"


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use can't be removed there")
def test_working_folder_that_is_gone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    project.rmdir()
    settings = Settings.load(environ={"LLM_MODEL_ID": "m"})
    assert settings.model == "m"
    assert "does not exist" in settings.describe()


# What wins


def test_environment_beats_file(project: Path) -> None:
    path = write_env(project, "LLM_API_KEY=file-key\nLLM_MODEL_ID=file\n")
    settings = load(project, LLM_API_KEY="environment-key")
    assert settings.api_key == "environment-key"
    assert settings.model == "file"
    assert settings.sources["LLM_API_KEY"] == "environment"
    assert settings.sources["LLM_MODEL_ID"] == str(path)


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_blank_counts_as_not_set(project: Path, blank: str) -> None:
    write_env(project, "LLM_TIMEOUT=\nLLM_MODEL_ID='  '\nLLM_API_KEY=file-key\n")
    settings = load(project, LLM_API_KEY=blank)
    assert settings.timeout is None
    assert settings.model is None
    assert settings.api_key == "file-key"


# What a file may hold


@pytest.mark.parametrize(("line", "value"), [
    ('KEY="abc"', "abc"), ("KEY='abc'", "abc"), ("KEY=abc # note", "abc"), ("KEY=abc#1", "abc#1"),
    ("export KEY=abc", "abc"), ("KEY = abc", "abc"), ("KEY=abc\r", "abc"), ("KEY=abc  ", "abc"),
    ("KEY=$HOME-${HOME}", "$HOME-${HOME}"), ("KEY", None), ("KEY=", None), ("KEY= # note", None),
    ('KEY= "# x"', "# x"), ("# KEY=abc", None), ("KEY=a=b", "a=b"), ("\ufeffKEY=abc", "abc"),
    ("KEY=模型", "模型"),
])
def test_line_forms(project: Path, line: str, value: str | None) -> None:
    write_env(project, line.replace("KEY", "LLM_MODEL_ID", 1) + "\nLLM_TIMEOUT=9\n")
    settings = load(project)
    assert settings.model == value
    assert settings.timeout == 9


@pytest.mark.parametrize("content", [
    "LLM_MODEL_ID=m\n".encode("utf-16"), "LLM_MODEL_ID=m\n".encode("utf-16-le"),
    "# 模型\nLLM_MODEL_ID=m\n".encode("gbk"), b"\x00\x01",
])
def test_other_encodings_are_one_clear_line(project: Path, content: bytes) -> None:
    path = write_env(project, content)
    with pytest.raises(SettingsError) as caught:
        load(project)
    message = str(caught.value)
    assert str(path) in message
    assert "UTF-8" in message
    assert "\n" not in message


def test_a_folder_of_that_name(project: Path) -> None:
    (project / ".env").mkdir()
    with pytest.raises(SettingsError, match="is a folder"):
        load(project)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_of_that_name_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / ".env")
    with pytest.raises(SettingsError, match=r"can't be read \(it is no regular file\)"):
        load(project)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs file permissions")
def test_unreadable_by_permission(project: Path) -> None:
    write_env(project, "LLM_MODEL_ID=m\n").chmod(0)
    with pytest.raises(SettingsError, match="permissions"):
        load(project)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that no one can read")
def test_unreadable_file(project: Path) -> None:
    (project / ".env").symlink_to("/proc/self/mem")
    with pytest.raises(SettingsError, match="can't be read"):
        load(project)


def test_a_broken_line_is_noted_without_its_text(project: Path) -> None:
    write_env(project, 'LLM_MODEL_ID=m\n\nLLM_API_KEY="sekret-value\n')
    settings = load(project)
    assert settings.model == "m"
    assert settings.api_key is None
    assert any("Line 3" in note for note in settings.notes)
    assert "sekret" not in settings.describe()


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    with open_file(tmp_path / "notes") as file:
        assert file.read() == b"mine"
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "missing")
    with pytest.raises(OSError, match=r"directory|denied"):
        open_file(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "link")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="it is no regular file"):
            open_file(tmp_path / name)


# Values


@pytest.mark.parametrize("value", ["60s", "0", "-1", "nan", "inf", "none"])
def test_bad_timeout(value: str) -> None:
    with pytest.raises(SettingsError, match=rf"LLM_TIMEOUT is '{value}'"):
        load(Path("/nowhere"), LLM_TIMEOUT=value)


def test_good_timeout() -> None:
    assert load(Path("/nowhere"), LLM_TIMEOUT=" 2.5 ").timeout == 2.5


@pytest.mark.parametrize(("names", "state", "missing"), [
    ((), "none", ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL")),
    (("LLM_API_KEY",), "some", ("LLM_MODEL_ID", "LLM_BASE_URL")),
    (("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"), "all", ()),
])
def test_which_llm_names_are_set(names: tuple[str, ...], state: str, missing: tuple[str, ...]) -> None:
    settings = load(Path("/nowhere"), **dict.fromkeys(names, "x"))
    assert settings.llm_is_set == state
    assert settings.missing_llm_names == missing


def test_keys_are_shown_nowhere() -> None:
    keys = {"LLM_API_KEY": "aaaa-bbbb-cccc", "SERPAPI_API_KEY": "dddd-eeee", "OPENWEATHER_API_KEY": "ffff-gg"}
    settings = load(Path("/nowhere"), **keys, LLM_TIMEOUT="30", LLM_BASE_URL="https://user:hidden@example.com/v1")
    table = settings.describe()
    for key in keys.values():
        assert key[:4] not in table + repr(settings)
    assert "set (14 characters)" in table
    assert "hidden" not in table
    assert "https://example.com/v1" in table
    assert re.search(r"LLM_TIMEOUT +30 +environment", table)
    assert settings.secrets == tuple(keys.values())


def test_key_is_trimmed() -> None:
    assert check_key("LLM_API_KEY", " abc-123\r\n") == "abc-123"
    assert load(Path("/nowhere"), LLM_API_KEY="abc-123\n").api_key == "abc-123"


@pytest.mark.parametrize("value", ["sk-proj-Ab12_xy", "EMPTY", "ollama", "none", "lm-studio", "token-abc123",
                                   "sk-no-key-required", "a1b2.c3d4", "my-secret"])
def test_keys_that_pass(value: str) -> None:
    assert check_key("LLM_API_KEY", value) == value


@pytest.mark.parametrize("value", [
    "your-api-key-here", "YOUR_API_KEY", "YOUR-API-KEY", "yourkey", "your_serpapi_api_key", "sk-your-key",
    "sk-xxxx", "sk-...", "xxxxxxxx-xxxx", "<your key>", "<key>", "{api_key}", "${LLM_API_KEY}", "你的密钥",
    "在此填入KEY", "change-me", "replace_with_your_key", "api_key", "API-KEY-HERE", "***",
])
def test_placeholders_are_told(value: str) -> None:
    with pytest.raises(SettingsError, match="SERPAPI_API_KEY still holds a placeholder: fill in"):
        check_key("SERPAPI_API_KEY", value)


@pytest.mark.parametrize("value", ["Bearer abc123", '"abc123"', "abc\n123", "abc\u200b123"])
def test_what_no_key_holds(value: str) -> None:
    with pytest.raises(SettingsError, match="copy the key again") as caught:
        check_key("LLM_API_KEY", value)
    assert "abc" not in str(caught.value)


def test_blank_key_and_address() -> None:
    with pytest.raises(SettingsError, match="LLM_API_KEY is not set"):
        check_key("LLM_API_KEY", " ")
    with pytest.raises(SettingsError, match="LLM_BASE_URL is not set"):
        check_base_url("\n")


def test_checks_take_linear_time() -> None:
    started = time.perf_counter()
    for hostile in ("your" + "a" * 500_000 + "!", "x-" * 250_000 + "!", "sk-" * 20 + "!", "{" * 500_000):
        with pytest.raises(SettingsError):
            check_base_url(hostile)
        try:
            check_key("LLM_API_KEY", hostile)
        except SettingsError:
            pass
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(("value", "expected"), [
    ("https://example.com/v1", "https://example.com/v1"),
    ("https://example.com/v1/", "https://example.com/v1"),
    (" http://localhost:8000//v1// \n", "http://localhost:8000/v1"),
    ("https://example.com/v1/chat/completions", "https://example.com/v1"),
    ("https://example.com/v1//chat/completions/", "https://example.com/v1"),
    ("HTTPS://example.com", "https://example.com"), ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ("https://example.com/v1/?version=2#x", "https://example.com/v1?version=2"),
    ("https://https://example.com/v1", "https://example.com/v1"), ("http://HTTPS://example.com", "https://example.com"),
    ("http://[fe80::1%eth0]", "http://[fe80::1%eth0]"),
    ("\ufeffhttps://example.com/v1/\u200b", "https://example.com/v1"),
    ("https://example.com/v1/completions", "https://example.com/v1"),
    ("https://example.com/v1/Chat/Completions/", "https://example.com/v1"),
    ("https://example.com/V1/RESPONSES", "https://example.com/V1"),
    ("https://example.com/v1/models/", "https://example.com/v1"),
    ("https://example.com/models/chat/completions", "https://example.com/models"),
    ("https://example.com/models", "https://example.com/models"),
    ("https://user:pa@ss@my_host.example.com.:8/@me", "https://user:pa@ss@my_host.example.com.:8/@me"),
    ("https://bücher.example/v1", "https://bücher.example/v1"),
])
def test_addresses_in_one_shape(value: str, expected: str) -> None:
    assert check_base_url(value) == expected


@pytest.mark.parametrize("value", ["api.example.com/v1", "localhost:8000", "127.0.0.1:8000/v1", "//a.com/v1"])
def test_missing_scheme(value: str) -> None:
    with pytest.raises(SettingsError, match=r"OTHER_URL is .*https:// is missing"):
        check_base_url(value, "OTHER_URL")


@pytest.mark.parametrize("value", ["https:/example.com", "https://", "ftp://example.com", "http://h:99999/",
                                   "http://h:x/", "http://[::1/v1", "https://exa mple.com", "https://<host>/v1",
                                   "https://x..com", "https://a,b", "https://.x.com",
                                   "https://a.com,https://b.com", "https://a.com/v1,https://b.com/v1",
                                   "https://x.com/v\u200b1", "https://x\u200b.com",
                                   "https://x.com\\v1", 'https://x.com/v1"', "https://x.com/\x00", "https://:80"])
def test_no_address(value: str) -> None:
    with pytest.raises(SettingsError, match="not an address"):
        check_base_url(value)


@pytest.mark.parametrize("value", ["YOUR_BASE_URL", "<url>", "your-url-here"])
def test_placeholder_address(value: str) -> None:
    with pytest.raises(SettingsError, match="fill in the service's address"):
        check_base_url(value)


@pytest.mark.parametrize(("value", "shown"), [
    ("https://x.com/v1?api-key=SECRET", "https://x.com/v1?api-key=***"),
    ("x.com/v1?version=2&key=SECRET=&SECRET#SECRET", "x.com/v1?version=***&key=***&***"),
    ("https://SECRET:SEC@SECRET@host:80/v1", "https://host:80/v1"),
    ("https://SECRET@host/@me?mail=SECRET@SECRET", "https://host/@me?mail=***"),
    ("SECRET:SECRET@host/v1", "host/v1"), ("//SECRET@host", "//host"), ("https:/SECRET:SECRET@host", "https:/host"),
    ("https://SECRET:SEC/RET?SEC#RET@host/v1", "https://host/v1"), ("https:\\\\SECRET:SECRET@host", "https:host"),
    ("ftp://SECRET:SECRET@[::1]:80/v1", "ftp://[::1]:80/v1"), ("http://localhost:80/@me", "http://localhost:80/@me"),
])
def test_no_login_and_no_value_of_a_query_is_shown(value: str, shown: str) -> None:
    assert without_secrets(value) == shown
    names = [name for name in NAMES if name.endswith("_URL")]
    settings = load(Path("/nowhere"), LLM_MODEL_ID="@maker/model?", **dict.fromkeys(names, value))
    assert settings.describe().count(f" {shown} ") == len(names)
    assert " @maker/model? " in settings.describe()
    assert "SEC" not in settings.describe() + repr(settings)
    for wrong in (value, value.replace("https:", "ftp:"), value.replace("https://", ""), value + "<"):
        said = ""
        try:
            check_base_url(wrong)
        except SettingsError as error:
            said = str(error)
        assert not re.search("SEC|RET", said)
