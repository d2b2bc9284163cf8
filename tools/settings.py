"""Writes docs/settings.md: every setting, from the metadata of its field in moca.config.

python tools/settings.py
"""

from pathlib import Path

from moca import presets, settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
HEAD = """\
# Settings

Every setting, its default and its value in each preset. `moca settings` prints the same list,
`moca settings critic` a section, `moca settings critic.lr` one setting in full, and `--json` prints
JSON. Set one with `--set value.lr=1e-3`, in a file for `--config`, or in Python with
`moca.MoCA(env, value__lr=1e-3)`.

Values that differ for a task or an agent follow in brackets; an empty cell means the default.
For other tasks, ranges and lengthscales are measured in a short random rollout:
[environments.md](environments.md).

<!-- written by tools/settings.py -->
"""


def page() -> str:
    """Returns the page as text."""
    blocks = [HEAD]
    for section, own in settings.sections().items():
        heads = ["setting", "type", "allowed", "default", *(f"`{name}`" for name in presets.PRESETS), "what it does"]
        lines = [f"## {section or 'The run'}", "", settings.about(section), "", _row(heads), "|---" * len(heads) + "|"]
        blocks.append("\n".join([*lines, *(_row(_cells(each)) for each in own)]) + "\n")
    return "\n".join(blocks)


def _cells(setting: settings.Setting) -> list[str]:
    """Returns the cells of a setting; empty for presets that use the default."""
    default = {"": setting.default}
    values = ["" if own == default else settings.values(own) for own in setting.presets.values()]
    facts = [setting.type, setting.briefly_allowed, settings.value(setting.default)]
    return [f"`{setting.name}`", *facts, *values, setting.text]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
