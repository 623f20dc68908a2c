"""Date, weekday and time, here or in another place.

Takes a city, a country with one time zone, an IANA zone or an offset such as UTC+8; gives one line.

    >>> now("UTC").endswith("in UTC (UTC+00:00)")
    True
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from ..errors import ToolError

# A zone and the places it is found by, in English and Chinese; the city that names a zone needs no entry.
_PLACES = """
Africa/Cairo egypt 开罗 埃及
Africa/Johannesburg cape_town south_africa 开普敦 约翰内斯堡 南非
Africa/Lagos nigeria 拉各斯
Africa/Nairobi kenya 内罗毕 肯尼亚
America/Argentina/Buenos_Aires argentina 布宜诺斯艾利斯 阿根廷
America/Bogota colombia 波哥大
America/Chicago dallas houston austin 芝加哥 达拉斯 休斯敦
America/Denver 丹佛
America/Lima peru 利马 秘鲁
America/Los_Angeles san_francisco seattle las_vegas san_diego silicon_valley 洛杉矶 旧金山 西雅图 硅谷
America/Los_Angeles 拉斯维加斯
America/Mexico_City 墨西哥城
America/New_York new_york_city nyc washington washington_dc boston miami philadelphia atlanta 纽约 华盛顿
America/New_York 波士顿 迈阿密 费城
America/Sao_Paulo são_paulo rio rio_de_janeiro brasilia 圣保罗 里约热内卢
America/Toronto ottawa montreal 多伦多 渥太华 蒙特利尔
America/Vancouver 温哥华
Asia/Bangkok thailand 曼谷 泰国
Asia/Dubai abu_dhabi uae united_arab_emirates 迪拜 阿布扎比 阿联酋
Asia/Ho_Chi_Minh ho_chi_minh_city saigon hanoi vietnam 河内 胡志明市 越南
Asia/Hong_Kong 香港
Asia/Jakarta 雅加达
Asia/Jerusalem tel_aviv israel 耶路撒冷 特拉维夫 以色列
Asia/Kolkata india delhi new_delhi mumbai bangalore bengaluru chennai 印度 新德里 德里 孟买 班加罗尔
Asia/Karachi pakistan islamabad 卡拉奇 巴基斯坦
Asia/Kuala_Lumpur malaysia 吉隆坡 马来西亚
Asia/Macau macao 澳门
Asia/Manila philippines 马尼拉 菲律宾
Asia/Riyadh saudi_arabia 利雅得 沙特阿拉伯
Asia/Seoul korea south_korea busan 首尔 韩国 釜山
Asia/Shanghai china beijing shenzhen guangzhou hangzhou chengdu wuhan nanjing xi'an xian tianjin suzhou
Asia/Shanghai chongqing 中国 北京 上海 深圳 广州 杭州 成都 武汉 南京 西安 天津 苏州 重庆 哈尔滨 昆明 厦门
Asia/Shanghai 青岛 长沙 拉萨
Asia/Singapore 新加坡
Asia/Taipei taiwan 台北 台湾
Asia/Tehran iran 德黑兰 伊朗
Asia/Tokyo japan osaka kyoto 东京 大阪 京都 日本
Atlantic/Reykjavik iceland 雷克雅未克 冰岛
Australia/Sydney canberra 悉尼 堪培拉
Australia/Brisbane 布里斯班
Australia/Melbourne 墨尔本
Australia/Perth 珀斯
Europe/Amsterdam netherlands 阿姆斯特丹 荷兰
Europe/Athens greece 雅典 希腊
Europe/Berlin germany munich hamburg frankfurt cologne 柏林 德国 慕尼黑 汉堡 法兰克福
Europe/Brussels belgium 布鲁塞尔 比利时
Europe/Copenhagen denmark 哥本哈根 丹麦
Europe/Dublin ireland 都柏林 爱尔兰
Europe/Helsinki finland 赫尔辛基 芬兰
Europe/Istanbul turkey ankara 伊斯坦布尔 土耳其
Europe/Kyiv kiev ukraine 基辅 乌克兰
Europe/Lisbon 里斯本
Europe/London uk united_kingdom great_britain england scotland edinburgh manchester 伦敦 英国 爱丁堡
Europe/London 曼彻斯特
Europe/Madrid barcelona 马德里 巴塞罗那
Europe/Moscow saint_petersburg st_petersburg 莫斯科 圣彼得堡
Europe/Oslo norway 奥斯陆 挪威
Europe/Paris france lyon marseille 巴黎 法国 里昂 马赛
Europe/Prague czechia 布拉格 捷克
Europe/Rome italy milan venice florence 罗马 意大利 米兰 威尼斯 佛罗伦萨
Europe/Stockholm sweden 斯德哥尔摩 瑞典
Europe/Vienna austria 维也纳 奥地利
Europe/Warsaw poland 华沙 波兰
Europe/Zurich switzerland geneva bern 苏黎世 瑞士 日内瓦 伯尔尼
Pacific/Auckland new_zealand wellington 奥克兰 新西兰 惠灵顿
Pacific/Honolulu hawaii 檀香山 夏威夷
"""


# Behind a comma: "Paris, Texas" is not the one in France.
_AMERICAN = """
usa us united_states united_states_of_america america canada 美国 加拿大
alabama al alaska ak arizona az arkansas ar california ca colorado co connecticut ct delaware de florida fl
georgia ga hawaii hi idaho id illinois il indiana in iowa ia kansas ks kentucky ky louisiana la maine me
maryland md massachusetts ma michigan mi minnesota mn mississippi ms missouri mo montana mt nebraska ne
nevada nv new_hampshire nh new_jersey nj new_mexico nm new_york ny north_carolina nc north_dakota nd ohio oh
oklahoma ok oregon or pennsylvania pa rhode_island ri south_carolina sc south_dakota sd tennessee tn texas tx
utah ut vermont vt virginia va washington wa west_virginia wv wisconsin wi wyoming wy dc
alberta ab british_columbia bc manitoba mb ontario on quebec qc nova_scotia ns saskatchewan sk
"""


def now(place: str = "") -> str:
    """Get the date, weekday and time. Use it for every question about today or now; the input is a city or a
    time zone, such as Beijing, 纽约 or Europe/Paris, or nothing for the local time.

    Raises:
        ToolError: the place is not known (the message says what to write), or there are no time zones here.
    """
    place = " ".join(place.split())
    if not place:
        return _line(datetime.now().astimezone(), "local time")
    plain = place.replace(" ", "").replace("−", "-").upper()
    if offset := re.fullmatch(r"(?:UTC|GMT|Z)(?:([+-])(\d{1,2})(?::?([0-5]\d))?)?", plain):
        return _line(datetime.now(_fixed(*offset.groups())), plain)
    zone, name = _zone(place)
    return _line(datetime.now(zone), name)


def _line(moment: datetime, where: str) -> str:
    offset = moment.strftime("%z")
    # Weekday names of our own: strftime's follow the computer's language.
    day = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[moment.weekday()]
    return f"{day}, {moment:%Y-%m-%d %H:%M:%S} in {where} (UTC{offset[:3]}:{offset[3:5]})"


def _fixed(sign: str | None, hours: str | None, minutes: str | None) -> tzinfo:
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if offset > timedelta(hours=12 if sign == "-" else 14):
        raise ToolError("There is no such offset: UTC-12:00 to UTC+14:00 exist.")
    return timezone(-offset if sign == "-" else offset)


def _zone(place: str) -> tuple[tzinfo, str]:
    zones = _zones()
    if not zones:
        raise ToolError("This computer has no time zones: a person has to pip install tzdata. "
                        "Only the local time and offsets such as UTC+8 work.")
    # "Beijing, China", "北京市" and "北京时间" are found by "Beijing" and "北京", "Paris, Texas" is not.
    city, *more = (piece.strip() for piece in re.split("[,，]", place))
    near, region = zones.get(_plain(city), ""), _plain(more[-1]) if more else ""
    if region.replace(" ", "_") in _AMERICAN.split():
        fits = near.startswith(("America/", "Pacific/Honolulu"))
    else:
        fits = region not in zones or not near or len({_offset(near), _offset(zones[region])}) == 1
    for written in (place, city if fits else "", re.sub(r"(?i)(?:市|时间| time)\Z", "", place)):
        if zone := zones.get(_plain(written)):
            return ZoneInfo(zone), f"{written} ({zone})" if written != zone else zone
    alone = f' "{city}" alone is in {near}.' if near else ""
    raise ToolError(f'The place "{place}" is not known.{alone} Write a large city nearby or a time zone, '
                    "such as Beijing, New York, Europe/Paris or UTC+8.")


def _offset(zone: str) -> timedelta | None:
    return datetime.now(ZoneInfo(zone)).utcoffset()


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    """Zones by every name that finds them; a name of our own table wins over a zone's last part."""
    available = available_timezones()
    found = {}
    for zone in sorted(available):
        if "/" in zone and not zone.startswith("Etc/"):
            found[_plain(zone.rsplit("/", 1)[1])] = zone
        found[_plain(zone)] = zone
    for zone, *names in map(str.split, _PLACES.split("\n")[1:-1]):
        if zone in available:
            found.update(dict.fromkeys(map(_plain, [zone.rsplit("/", 1)[1], *names]), zone))
    return found


def _plain(name: str) -> str:
    return re.sub("[ _,，-]+", " ", name.casefold().replace(".", "")).strip()
