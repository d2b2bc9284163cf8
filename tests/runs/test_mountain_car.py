"""The sentence of docs/training.md about best policies is that of results/mountain_car/summary.json."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "results" / "mountain_car" / "summary.json").read_text())


def test_the_page_says_what_the_file_holds():
    page = " ".join((ROOT / "docs" / "training.md").read_text().split())
    reported, intervals, lasts = ([row[name] for row in ROWS] for name in ("reported", "interval", "last"))
    apart = [abs(row["others"] - row["reported"]) for row in ROWS]
    (beyond,) = (each - row["interval"] for each, row in zip(apart, ROWS, strict=True) if each > row["interval"])
    assert [row["seed"] for row in ROWS] == [0, 1, 2, 3, 4]
    assert f"reported with {min(reported):.1f} to {max(reported):.1f}" in page
    assert f"intervals of ± {min(intervals):.2f} to ± {max(intervals):.2f}" in page
    assert f"by {max(apart):.2f} at most, four of the five by less than their interval" in page
    assert f"one by {beyond:.3f} more" in page
    assert f"The last policies have {min(lasts):.0f} to {max(lasts):.0f}".replace("-", "−") in page
