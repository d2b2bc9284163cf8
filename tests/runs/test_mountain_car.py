"""The sentence of docs/training.md about best policies is that of results/mountain_car/summary.json."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "results" / "mountain_car" / "summary.json").read_text())


def test_the_page_says_what_the_file_holds():
    page = " ".join((ROOT / "docs" / "training.md").read_text().split())
    reported, intervals, lasts = ([row[name] for row in ROWS] for name in ("reported", "interval", "last"))
    apart = [abs(row["others"] - row["reported"]) for row in ROWS]
    assert all(each < row["interval"] for each, row in zip(apart, ROWS, strict=True))
    assert [row["seed"] for row in ROWS] == list(range(11))
    assert f"reported with {min(reported):.1f} to {max(reported):.1f}" in page
    assert f"intervals of ± {min(intervals):.2f} to ± {max(intervals):.2f}" in page
    assert all(row["others"] > row["reported"] for row in ROWS) == ("All of them score a little more there" in page)
    assert f"each of the eleven differs from that by less than its interval, and by {max(apart):.3f} at most" in page
    assert f"the last policies have {min(lasts):.1f} to {max(lasts):.1f}, none more than the best policy" in page
    assert all(row["last"] <= row["others"] for row in ROWS)
