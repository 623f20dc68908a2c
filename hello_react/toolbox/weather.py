"""The weather now: OpenWeather where OPENWEATHER_API_KEY is set, else Open-Meteo, which needs no key.

Takes a city in English or Chinese, gives one line in metric units. Leaves out forecasts of more than today.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import SettingsError, ToolError
from ..settings import Settings, check_base_url, check_key
from ..text import clip, redact
from .fetch import fetch_json, reading

TIMEOUT = 10  # seconds for each request
_CHINESE = re.compile("[\u3400-\u9fff]")
_COUNTRIES = {"uk": "gb", "usa": "us", "uae": "ae"}  # what people write: the code
# The World Meteorological Organization's codes of present weather, as far as Open-Meteo uses them.
_SKY = {
    0: "clear sky", 1: "mainly clear", 2: "partly cloudy", 3: "overcast", 45: "fog", 48: "freezing fog",
    51: "light drizzle", 53: "drizzle", 55: "dense drizzle", 56: "light freezing drizzle",
    57: "freezing drizzle", 61: "light rain", 63: "rain", 65: "heavy rain", 66: "light freezing rain",
    67: "freezing rain", 71: "light snow", 73: "snow", 75: "heavy snow", 77: "snow grains",
    80: "light showers", 81: "showers", 82: "violent showers", 85: "snow showers", 86: "heavy snow showers",
    95: "thunderstorm", 96: "thunderstorm with hail", 99: "thunderstorm with heavy hail",
}


def get_weather(city: str) -> str:
    """Get the weather of a city right now. Use it for questions about weather or temperature; the input is
    one city, in English or Chinese, such as Beijing or 上海 or Paris, Texas.

    Returns:
        One line: place, sky, temperature in °C, humidity in %, wind in m/s; or that no such city was found.

    Raises:
        ToolError: the service failed, or its key can't be used.
    """
    city = " ".join(city.replace("，", ",").split())
    if not city:
        raise ToolError("The city is empty: write one, such as Beijing.")
    if re.fullmatch("[\u3400-\u9fff]{2,}市", city):
        city = city[:-1]  # 北京市 is listed as 北京
    try:
        settings = Settings.load()
        if settings.openweather_api_key:
            key = check_key("OPENWEATHER_API_KEY", settings.openweather_api_key)
            base_url = settings.openweather_base_url or "https://api.openweathermap.org"
            return _openweather(city, key, check_base_url(base_url, "OPENWEATHER_BASE_URL"))
        base_url = settings.open_meteo_base_url or ""
        return _open_meteo(city, base_url and check_base_url(base_url, "OPEN_METEO_BASE_URL"))
    except SettingsError as error:
        raise ToolError(f"The weather can't be asked for. {error}") from None


@reading("OpenWeather")
def _openweather(city: str, key: str, base_url: str) -> str:
    status, data = _get("OpenWeather", f"{base_url}/data/2.5/weather",
                        {"q": city, "units": "metric", "lang": "en", "appid": key})
    said = redact(str(data.get("message") or ""), (key,))
    if status == 404 and "not found" in said:
        return _not_found(city)
    if status == 401:
        raise ToolError("OpenWeather refused its key: a person has to correct OPENWEATHER_API_KEY "
                        "(a new key takes some hours to work). Do without it.")
    if status >= 400:
        raise _failed("OpenWeather", status, said)
    now = data.get("main") or {}
    return _line([data.get("name") or city, (data.get("sys") or {}).get("country")],
                 (data.get("weather") or [{}])[0].get("description"), now.get("temp"), now.get("feels_like"),
                 now.get("humidity"), (data.get("wind") or {}).get("speed"))


@reading("Open-Meteo")
def _open_meteo(city: str, base_url: str) -> str:
    name, *rest = [part.strip() for part in city.split(",") if part.strip()] or [city]
    status, data = _get("Open-Meteo", f"{base_url or 'https://geocoding-api.open-meteo.com'}/v1/search",
                        {"name": name, "count": "10", "language": "zh" if _CHINESE.search(city) else "en"})
    if status >= 400:
        raise _failed("Open-Meteo", status, data.get("reason"))
    places = data.get("results") or []
    fitting = [place for place in places if _is_in(place, rest)]
    if not fitting:
        known = list(dict.fromkeys(", ".join(filter(None, _names(place))) for place in places))
        return _not_found(city) + (f" There are: {'; '.join(known)}." if known else "")
    place = fitting[0]
    status, data = _get("Open-Meteo", f"{base_url or 'https://api.open-meteo.com'}/v1/forecast", {
        "latitude": str(place["latitude"]), "longitude": str(place["longitude"]), "wind_speed_unit": "ms",
        "current": "temperature_2m,apparent_temperature,relative_humidity_2m,weather_code,wind_speed_10m"})
    if status >= 400:
        raise _failed("Open-Meteo", status, data.get("reason"))
    now = data.get("current") or {}
    return _line(_names(place), _SKY.get(now.get("weather_code", -1)), now.get("temperature_2m"),
                 now.get("apparent_temperature"), now.get("relative_humidity_2m"), now.get("wind_speed_10m"))


def _get(service: str, address: str, parameters: dict[str, str]) -> tuple[int, dict[str, Any]]:
    import requests

    return fetch_json(service, lambda: requests.get(address, params=parameters, timeout=TIMEOUT), TIMEOUT)


def _names(place: dict[str, Any]) -> list[Any]:
    """Name, region if it is not the same, country."""
    region = place.get("admin1")
    return [place.get("name"), region if region != place.get("name") else None, place.get("country")]


def _is_in(place: dict[str, Any], wanted: list[str]) -> bool:
    """Whether every part that was written behind the city names the place's region or country."""
    names = {str(place.get(name, "")).casefold() for name in ("admin1", "country", "country_code")}
    return all(_COUNTRIES.get(part.casefold(), part.casefold()) in names for part in wanted)


def _line(names: list[Any], sky: Any, temperature: Any, felt: Any, humidity: Any, wind: Any) -> str:
    if not isinstance(temperature, (int, float)):
        raise ToolError("The weather service gave no temperature. Try again once or do without it.")
    parts = [sky, f"{temperature:g} °C"]
    for value, form in ((felt, "feels like {:g} °C"), (humidity, "humidity {:g}%"), (wind, "wind {:g} m/s")):
        if isinstance(value, (int, float)):
            parts.append(form.format(value))
    return f"{', '.join(filter(None, names))}: {', '.join(filter(None, parts))}"


def _not_found(city: str) -> str:
    return f'No city "{city}" was found. Check the spelling; write the city alone, or with its country.'


def _failed(service: str, status: int, said: Any) -> ToolError:
    reason = clip(str(said or "no reason given"), 200)
    return ToolError(f"{service} failed (HTTP {status}): {reason} Do without it.")
