"""The paper's empirical claims, each judged by what studies measured.

The rules are those of docs/replication.md. `judge` returns a `Verdict` for every claim and preset:
*holds*, *refuted*, *equal*, *undecided* or *not measured*. `statements` lists the claims, `scores`
computes scores of runs, and `rules` contains the tests.

    verdicts = claims.judge(moca.load_results("results/cartpole"))
    print(claims.to_markdown(verdicts))
"""

from moca.paper.claims.judging import Verdict, judge
from moca.paper.claims.markdown import NOTES, not_measured, to_markdown
from moca.paper.claims.rules import ABSENT, EQUAL, HOLDS, REFUTED, UNDECIDED, WORDS
from moca.paper.claims.scores import NOTHING
from moca.paper.tasks import CARTPOLE, PENDULUM

__all__ = [
    "ABSENT", "CARTPOLE", "EQUAL", "HOLDS", "NOTES", "NOTHING", "PENDULUM", "REFUTED", "UNDECIDED", "WORDS", "Verdict",
    "judge", "not_measured", "to_markdown",
]  # fmt: skip
