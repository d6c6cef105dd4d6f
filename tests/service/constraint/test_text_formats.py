"""The standard's formats on bare text. The oracle is the same format inside JSON."""

from __future__ import annotations

import json
import re

import pytest

from service.constraint.text_formats import TEXT_FORMATS
from tests.service.constraint.grammars import enforced

SAMPLES = {
    "date-time": (["2024-02-29T23:59:59Z", "2021-12-31t00:00:00.5+01:30"], ["2021-02-28", "x"]),
    "time": (["10:00:00Z"], ["10:00", "24:00:00Z"]),
    "date": (
        ["2024-02-29", "2000-02-29", "2021-04-30"],
        ["2021-04-31", "2021-13-01", "2021-02-30"],
    ),
    "duration": (["P1Y2M3DT4H5M6S", "PT5M", "P2W"], ["P", "PT", "5M"]),
    "email": (["a.b+c@example.org"], ["a@", "a b@c.d", "a..b@c.d"]),
    "hostname": (["a-b.example", "localhost", "s3.eu-west-1.amazonaws.com"], ["-a", "a..b", "a_b"]),
    "ipv4": (["255.0.10.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (
        ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1:2"],
        ["1:2", ":::", "1::2::3", "::ffff:192.0.2.1"],
    ),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    "uri": (
        ["https://u@a.b:80/c/d?e=f#g", "mailto:a@b.c", "http://[::1]/", "urn:a:b", "file:///a"],
        ["a b", "//x/y", "http://a b/", "http://a/%zz", "a#b:c"],
    ),
}


@pytest.mark.parametrize("name", sorted(TEXT_FORMATS))
def test_a_format_has_the_pattern_of_the_same_texts(name: str) -> None:
    good, bad = SAMPLES[name]
    for text in (*good, *bad):
        fits = re.search(TEXT_FORMATS[name], text) is not None
        assert fits == (text in good), text
        assert enforced({"type": "string", "format": name}, json.dumps(text)) == fits, text


def test_only_leap_years_have_a_29th_of_february() -> None:
    days = [f"{year}-02-29" for year in (1900, 2000, 2021, 2024, 2100)]
    assert [bool(re.search(TEXT_FORMATS["date"], day)) for day in days] == [
        *(False, True, False, True, False)
    ]
