"""Weather against real servers on loopback that play OpenWeather and Open-Meteo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hello_react.errors import ToolError
from hello_react.toolbox import weather
from hello_react.toolbox.weather import get_weather
from tests.tool_servers import OpenMeteoServer, OpenWeatherServer, isolate

KEY = "weather-key-0123456789"
PARIS = {"name": "Paris", "latitude": 48.85, "longitude": 2.35, "country_code": "FR", "country": "France",
         "admin1": "Île-de-France"}
TEXAS = {"name": "Paris", "latitude": 33.66, "longitude": -95.5, "country_code": "US",
         "country": "United States", "admin1": "Texas"}
LONDON = {"name": "London", "latitude": 51.5, "longitude": -0.1, "country_code": "GB",
          "country": "United Kingdom", "admin1": "England"}
BEIJING = {"name": "北京", "latitude": 39.9, "longitude": 116.4, "country_code": "CN", "country": "中国",
           "admin1": "北京"}
CURRENT = {"temperature_2m": 21.3, "apparent_temperature": 20.0, "relative_humidity_2m": 40,
           "weather_code": 61, "wind_speed_10m": 3.25}
REPORT = {"name": "Beijing", "sys": {"country": "CN"}, "weather": [{"description": "clear sky"}],
          "main": {"temp": -2.5, "feels_like": -6, "humidity": 30}, "wind": {"speed": 4}}


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def keyless(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenMeteoServer]:
    places: dict[str, list[dict[str, Any]]] = {"Paris": [PARIS, TEXAS], "London": [LONDON], "北京": [BEIJING]}
    with OpenMeteoServer(places, {"current": CURRENT}) as running:
        monkeypatch.setenv("OPEN_METEO_BASE_URL", running.url)
        yield running


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenWeatherServer]:
    cities = {"Beijing": REPORT, "北京": REPORT, "Odd": {"main": {"temp": 1}}, "Bare": {}}
    with OpenWeatherServer(cities) as running:
        monkeypatch.setenv("OPENWEATHER_BASE_URL", running.url)
        monkeypatch.setenv("OPENWEATHER_API_KEY", KEY)
        yield running


def refused(city: str) -> str:
    with pytest.raises(ToolError) as caught:
        get_weather(city)
    message = str(caught.value)
    assert KEY not in message
    assert "\n" not in message
    return message


# Without a key


def test_keyless(keyless: OpenMeteoServer) -> None:
    expected = "light rain, 21.3 °C, feels like 20 °C, humidity 40%, wind 3.25 m/s"
    assert get_weather("Paris") == f"Paris, Île-de-France, France: {expected}"
    asked = keyless.requests[1].query
    assert (asked["latitude"], asked["longitude"], asked["wind_speed_unit"]) == ("48.85", "2.35", "ms")


@pytest.mark.parametrize(("city", "place"), [
    ("Paris, Texas", "Paris, Texas, United States"), ("Paris,US", "Paris, Texas, United States"),
    ("Paris, texas, USA", "Paris, Texas, United States"), ("London, UK", "London, England, United Kingdom"),
    ("北京", "北京, 中国"), ("北京市", "北京, 中国"), ("北京，中国", "北京, 中国"),
    ("  London ", "London, England"),
])
def test_which_city(keyless: OpenMeteoServer, city: str, place: str) -> None:
    assert get_weather(city).startswith(place)
    assert keyless.requests[0].query["language"] == ("zh" if "北" in city else "en")


def test_city_not_found(keyless: OpenMeteoServer) -> None:
    assert get_weather("Qwxz").startswith('No city "Qwxz" was found.')
    assert get_weather(",").startswith('No city "," was found.')
    said = get_weather("Paris, Ontario")
    assert "There are: Paris, Île-de-France, France; Paris, Texas, United States." in said
    assert {request.path for request in keyless.requests} == {"/v1/search"}


def test_missing_parts(keyless: OpenMeteoServer) -> None:
    keyless.forecast = {"current": {"temperature_2m": 0, "weather_code": 1000, "wind_speed_10m": None}}
    assert get_weather("London") == "London, England, United Kingdom: 0 °C"
    keyless.forecast = {}
    assert "no temperature" in refused("London")


@pytest.mark.parametrize(("fault", "expected"), [
    ("html", "no usable answer"), ("drop", "could not be reached"), (429, "request limit exceeded")])
def test_keyless_faults(keyless: OpenMeteoServer, fault: str | int, expected: str) -> None:
    keyless.fault = fault
    assert expected in refused("Paris")


def test_forecast_fault(keyless: OpenMeteoServer) -> None:
    keyless.answer = lambda request: (  # type: ignore[method-assign]
        (200, {"results": [PARIS]}) if request.path == "/v1/search" else (400, {"error": True}))
    assert "HTTP 400): no reason given" in refused("Paris")


def test_nothing_to_ask(keyless: OpenMeteoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "city is empty" in refused(" ")
    monkeypatch.setenv("OPEN_METEO_BASE_URL", "localhost:80")
    assert "https:// is missing" in refused("Paris")
    assert keyless.requests == []


# With a key


@pytest.mark.parametrize("city", ["Beijing", "北京", "北京市"])
def test_keyed(keyed: OpenWeatherServer, city: str) -> None:
    expected = "Beijing, CN: clear sky, -2.5 °C, feels like -6 °C, humidity 30%, wind 4 m/s"
    assert get_weather(city) == expected


def test_keyed_missing_parts(keyed: OpenWeatherServer) -> None:
    assert get_weather("Odd") == "Odd: 1 °C"
    assert "no temperature" in refused("Bare")


def test_keyed_city_not_found(keyed: OpenWeatherServer) -> None:
    assert get_weather("Qwxz").startswith('No city "Qwxz" was found.')


def test_refused_key(keyed: OpenWeatherServer) -> None:
    keyed.key = "another"
    assert "OPENWEATHER_API_KEY" in refused("Beijing")


def test_placeholder_key_sends_nothing(keyed: OpenWeatherServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENWEATHER_API_KEY", "your_openweather_api_key")
    assert "fill in your own key" in refused("Beijing")
    assert keyed.requests == []


@pytest.mark.parametrize(("fault", "expected"), [
    ("gateway", "no usable answer (HTTP 502)"), (429, "temporary blocked"), (404, "failed (HTTP 404)")])
def test_keyed_faults(keyed: OpenWeatherServer, fault: str | int, expected: str) -> None:
    keyed.fault = fault
    assert expected in refused("Beijing")


def test_the_time_limit_is_moderate() -> None:
    assert 1 <= weather.TIMEOUT <= 30


def test_odd_answers_of_open_meteo_become_plain_words(keyless: OpenMeteoServer) -> None:
    for odd in ([None], [{"name": "Odd"}], ["x"], [{"name": 5, "latitude": 1, "longitude": 2}]):
        keyless.places["Odd"] = odd  # type: ignore[assignment]
        assert "Open-Meteo gave an answer in an unknown form" in refused("Odd")
    keyless.forecast = {"current": "x"}
    assert "unknown form" in refused("London")


def test_odd_answers_of_openweather_become_plain_words(keyed: OpenWeatherServer) -> None:
    for odd in ({"weather": [None]}, {"weather": "x"}, {"main": [1]}, {"main": {"temp": 1}, "sys": "x"}):
        keyed.cities["Odd"] = odd
        assert "OpenWeather gave an answer in an unknown form" in refused("Odd")


def test_a_city_that_can_not_be_sent_is_told(keyless: OpenMeteoServer) -> None:
    assert "could not be reached" in refused("Oslo \ud83d")
