"""Owns the words for times in the languages that are read: English, German, Chinese (data)."""

from __future__ import annotations

from agent.jobs.words.nouns import Part

WEEKDAYS: dict[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "monday montag 周一 星期一 礼拜一",
            "tuesday dienstag 周二 星期二 礼拜二",
            "wednesday mittwoch 周三 星期三 礼拜三",
            "thursday donnerstag 周四 星期四 礼拜四",
            "friday freitag 周五 星期五 礼拜五",
            "saturday samstag sonnabend 周六 星期六 礼拜六",
            "sunday sonntag 周日 周天 星期日 星期天 礼拜天",
        )
    )
    for name in names.split()
}
SHORT_WEEKDAYS: dict[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "mon", "tue tues", "wed", "thu thur thurs", "fri", "sat", "sun",
        )
    )
    for name in names.split()
}  # fmt: skip
"""Those that German has in two letters are words elsewhere ("do", "so"), so they are not read."""
DAYS: dict[str, tuple[int, Part | None]] = {
    "the day after tomorrow": (2, None), "day after tomorrow": (2, None),
    "tomorrow": (1, None), "today": (0, None), "tonight": (0, "night"), "yesterday": (-1, None),
    "tmrw": (1, None), "tmr": (1, None),
    "überübermorgen": (3, None), "übermorgen": (2, None), "uebermorgen": (2, None),
    "morgen": (1, None), "heute": (0, None), "gestern": (-1, None),
    "大后天": (3, None), "后天": (2, None), "明天": (1, None), "今天": (0, None),
    "昨天": (-1, None),
    "明早": (1, "morning"), "明晚": (1, "evening"), "今晚": (0, "night"), "今早": (0, "morning"),
}  # fmt: skip
PARTS: dict[str, Part] = {
    "morning": "morning", "afternoon": "afternoon", "evening": "evening", "night": "night",
    "früh": "morning", "morgens": "morning", "vormittag": "morning", "vormittags": "morning",
    "nachmittag": "afternoon", "nachmittags": "afternoon", "abend": "evening",
    "abends": "evening", "nacht": "night", "nachts": "night",
    "凌晨": "early", "早上": "morning", "早晨": "morning", "上午": "morning", "中午": "noon",
    "下午": "afternoon", "傍晚": "evening", "晚上": "evening",
}  # fmt: skip
PART_HOURS: dict[Part, int] = {
    "early": 5, "morning": 9, "noon": 12, "afternoon": 15, "evening": 18, "night": 20,
}  # fmt: skip
"""What a part of a day means where no hour stands beside it."""
UNITS: dict[str, tuple[int, int, int]] = {
    name: amount
    for names, amount in (
        ("seconds second secs sec s sekunden sekunde sek 秒钟 秒", (1, 0, 0)),
        ("minutes minute mins min m minuten 分钟 分", (60, 0, 0)),
        ("hours hour hrs hr h stunden stunde std 个小时 小时 个钟头", (3600, 0, 0)),
        ("days day d tagen tage tag 天 日", (0, 1, 0)),
        ("weeks week w wochen woche 个星期 星期 周", (0, 7, 0)),
        ("months month monaten monate monat 个月", (0, 0, 1)),
        ("years year jahren jahre jahr 年", (0, 0, 12)),
    )
    for name in names.split()
}
"""Seconds, days, months of one."""
NUMBERS: dict[str, float] = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20,
    "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90,
    "half a": 0.5, "half an": 0.5, "half": 0.5, "a couple of": 2,
    "ein": 1, "eine": 1, "einer": 1, "einem": 1, "eins": 1, "zwei": 2, "drei": 3, "vier": 4,
    "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11, "zwölf": 12,
    "zwanzig": 20, "dreißig": 30, "einer halben": 0.5, "eine halbe": 0.5, "anderthalb": 1.5,
    "半": 0.5, "两": 2,
}  # fmt: skip
CHINESE_DIGITS = {ch: n for n, ch in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
MONTHS: tuple[tuple[str, ...], ...] = (
    ("jan", "january", "januar", "jänner"), ("feb", "february", "februar"),
    ("mar", "march", "märz", "mär"), ("apr", "april"), ("may", "mai"), ("jun", "june", "juni"),
    ("jul", "july", "juli"), ("aug", "august"), ("sep", "sept", "september"),
    ("oct", "october", "okt", "oktober"), ("nov", "november"),
    ("dec", "december", "dez", "dezember"),
)  # fmt: skip
CITIES: dict[str, str] = {
    "beijing": "Asia/Shanghai", "mumbai": "Asia/Kolkata", "delhi": "Asia/Kolkata",
    "new_delhi": "Asia/Kolkata", "san_francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles", "boston": "America/New_York",
    "washington": "America/New_York", "munich": "Europe/Berlin", "hamburg": "Europe/Berlin",
    "frankfurt": "Europe/Berlin", "geneva": "Europe/Zurich", "barcelona": "Europe/Madrid",
    "milan": "Europe/Rome", "eastern": "America/New_York", "central": "America/Chicago",
    "mountain": "America/Denver", "pacific": "America/Los_Angeles",
}  # fmt: skip
"""Where people live whose zone is named after another city."""
NO_CITIES: tuple[str, ...] = (
    "easter", "christmas", "midway", "wake", "troll", "center", "knox", "resolute", "reunion",
    "jersey", "creston", "vincennes", "currie", "davis", "casey", "palmer", "rainy_river",
)  # fmt: skip
"""Names of zones that are words first: "Christmas time" is none."""
SHORT_ZONES: dict[str, str] = {
    "EST": "New York time", "EDT": "New York time", "CST": "Chicago time", "CDT": "Chicago time",
    "MST": "Denver time", "MDT": "Denver time", "PST": "Los Angeles time",
    "PDT": "Los Angeles time", "CET": "Berlin time", "CEST": "Berlin time", "MEZ": "Berlin time",
    "MESZ": "Berlin time", "BST": "London time", "IST": "Kolkata time", "JST": "Tokyo time",
}  # fmt: skip
"""Not taken: each is half a year's name, or that of several places. Where people may be meant."""
