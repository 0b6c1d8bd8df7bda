"""Score the story tools on the corpus of planted contradictions: recall for each kind, and false alarms.

python scripts/score_corpus.py first [--book NAME] [--verbose] [--write docs/reference/contradictions.md]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.corpus import scoring

if __name__ == "__main__":
    scoring.main()
