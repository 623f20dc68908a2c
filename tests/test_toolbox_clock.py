"""The clock: places, zones, offsets, and a computer without time zones."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hello_react.errors import ToolError
from hello_react.toolbox import clock as module
from hello_react.toolbox.clock import now

ROOT = Path(__file__).parents[1]


def moment_in(said: str) -> datetime:
    """The moment that a line tells, with its offset."""
    found = re.fullmatch(r"(\w+), (\S+ \S+) in .+ \(UTC([+-]\d\d:\d\d)\)", said)
    assert found, said
    moment = datetime.fromisoformat(found[2] + found[3])
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    assert found[1] == days[moment.weekday()]
    return moment


def test_docstring_examples() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("place", ["", "  ", "Beijing", "UTC+8"])
def test_it_is_now(place: str) -> None:
    assert abs(moment_in(now(place)) - datetime.now(timezone.utc)) < timedelta(minutes=1)


@pytest.mark.parametrize(("place", "zone"), [
    ("Beijing", "Asia/Shanghai"), ("beijing, China", "Asia/Shanghai"), ("北京", "Asia/Shanghai"),
    ("北京市", "Asia/Shanghai"), ("中国", "Asia/Shanghai"), ("纽约", "America/New_York"),
    ("New York", "America/New_York"), ("new_york", "America/New_York"),
    ("Washington, D.C.", "America/New_York"), ("Europe/Paris", "Europe/Paris"),
    ("europe/paris", "Europe/Paris"), ("Paris, France", "Europe/Paris"), ("St. Petersburg", "Europe/Moscow"),
    ("São Paulo", "America/Sao_Paulo"), ("Sao Paulo", "America/Sao_Paulo"),
    ("Anchorage", "America/Anchorage"), ("UK", "Europe/London"), ("东京", "Asia/Tokyo"),
    ("New York, USA", "America/New_York"), ("San Francisco, California, USA", "America/Los_Angeles"),
    ("纽约，美国", "America/New_York"), ("New York, New York", "America/New_York"),
    ("Kathmandu, Nepal", "Asia/Kathmandu"), ("Lisbon, Portugal", "Europe/Lisbon"),
    ("Boston, MA", "America/New_York"), ("Tokyo time", "Asia/Tokyo"), ("北京时间", "Asia/Shanghai"),
    ("Xi'an", "Asia/Shanghai"), ("Etc/GMT+8", "Etc/GMT+8"), ("America/Indiana/Knox", "America/Indiana/Knox"),
])
def test_places(place: str, zone: str) -> None:
    said = now(place)
    assert zone in said
    assert moment_in(said).utcoffset() == datetime.now(ZoneInfo(zone)).utcoffset()


def test_every_place_of_the_table_is_a_zone_here() -> None:
    for zone, *names in map(str.split, module._PLACES.strip().splitlines()):
        for name in names:
            assert zone in now(name)


@pytest.mark.parametrize(("place", "offset"), [
    ("UTC", 0), ("gmt", 0), ("Z", 0), ("UTC+8", 480), ("utc + 08:00", 480), ("GMT-3:30", -210),
    ("UTC−5", -300), ("UTC-12", -720),
    ("UTC+0545", 345), ("UTC+14", 840),
])
def test_offsets(place: str, offset: int) -> None:
    assert moment_in(now(place)).utcoffset() == timedelta(minutes=offset)


@pytest.mark.parametrize(("place", "hint"), [
    ("Atlantis", "such as Beijing"), ("../etc/passwd", "such as Beijing"), ("火星", "such as Beijing"),
    ("Paris, Texas", '"Paris" alone is in Europe/Paris'), ("Melbourne, Florida", "Australia/Melbourne"),
    ("Perth, Scotland", "Australia/Perth"), ("Nowhere, Japan", "such as"), ("UTC-13", "no such offset"),
    ("UTC+25", "no such offset"), ("UTC+5:99", "such as Beijing"), (",", "such as Beijing"),
    ("CST", "such as"),
])
def test_unknown_places(place: str, hint: str) -> None:
    with pytest.raises(ToolError, match=hint):
        now(place)


@pytest.mark.skipif(importlib.util.find_spec("tzdata") is not None, reason="tzdata is installed")
def test_without_time_zones() -> None:
    code = ("from hello_react.errors import ToolError\nfrom hello_react.toolbox.clock import now\n"
            "print(now('UTC+8')); print(now())\n"
            "try: now('Beijing')\nexcept ToolError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONTZPATH": "", "PYTHONPATH": str(ROOT)})
    offset, local, refused = done.stdout.splitlines()
    assert offset.endswith("(UTC+08:00)")
    assert "local time" in local
    assert "pip install tzdata" in refused
