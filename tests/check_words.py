"""Find phrases that read badly, and name better ones: python tests/check_words.py."""

from __future__ import annotations

import bisect
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READ = ("*.py", "*.md", "*.toml", "*.html", "*.js", "Makefile")
"""What people read, beside which data and generated files stand."""
LEFT_OUT = (
    "tests/",  # except that they are spelt correctly
    "reproduction/rules.md",  # written before the runs, so left as they were
    "reproduction/trim/rules.md",
    "reproduction/tables.md",
    "reproduction/trim/tables.md",
    "CODE_OF_CONDUCT.md",
)
PLAIN = {
    r"(?<![\"`.])told(?!\")": "name the actor: reported, passed, warned about, distinguished",
    r"go(?:es|ing)? on(?= (?:with|from|at|where|there|by|as|until)\b|[.,;:)])": "resume, continue",
    r"went on": "resumed, continued",
    r"one's own": "your own",
    r"(?:told|named|refused|says|say|said) in a sentence": "leave it out",
    r"what (?:is|was) \w+ wins": "say what overrides what",
    r"whoever|whomever": "the person or program that",
    r"that which": "what, the part that",
    r"(?:is|are) nobody's": "say what it is",
    r"no matter (?:what|which|how)": "any",
    r"(?:this|the|that|these) very (?!large|small|many|few|long|short|uneven)\w+": "the same",
    r"likewise": "also, the same way",
    r"thereby": "so",
    r"therein|thereof|thereupon|whereby|wherein|whereupon": "use two sentences",
    r"hence": "so",
    r"from which \w+ on": "from the first ... that",
    r"(?:code|files?|tests?|model|library|package|collator|network)s? wants?": "needs, expects",
    r"as it stands|as they stand": "unchanged, as given",
    r"without a word": "silently",
    r"helps? nobody": "does not help",
    r"(?:states|runs|stores|results|versions|those) of before": "earlier ones",
    r"so to (?:say|speak)": "leave it out",
    r"in the way that": "as",
}
"""Each habit as a regular expression, and the plain alternative."""


def tracked(*patterns: str) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", *patterns],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def prose(path: str, text: str) -> str:
    """Of Python only comments and texts, in their places; of other files everything."""
    if not path.endswith(".py"):
        return text
    lines = text.splitlines()
    kept = [" " * len(line) for line in lines]
    names = re.compile(r"\{[^{}]*\}")  # in an f-string of Python 3.11
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            for number in range(token.start[0] - 1, token.end[0]):
                first = token.start[1] if number == token.start[0] - 1 else 0
                last = token.end[1] if number == token.end[0] - 1 else len(lines[number])
                line = kept[number]
                words = names.sub(lambda name: " " * len(name[0]), lines[number][first:last])
                kept[number] = line[:first] + words + line[last:]
    return "\n".join(kept)


def finds(text: str) -> list[tuple[int, str, str]]:
    """Line, phrase and alternative of each find; a phrase may run over the end of a line."""
    starts = [match.start() for match in re.finditer(r"^", text, re.M)]
    found = []
    for phrase, better in PLAIN.items():
        spaced = phrase.replace(" ", r"\s+(?:[#>\"f]*\s*)?")
        for match in re.finditer(rf"\b(?:{spaced})(?!\w)", text, re.I):
            line = bisect.bisect_right(starts, match.start())
            found.append((line, " ".join(match[0].split()), better))
    return sorted(found)


def main() -> int:
    paths = [path for path in tracked(*READ) if not path.startswith(LEFT_OUT)]
    count = 0
    for path in paths:
        text = (ROOT / path).read_text(encoding="utf-8")
        for line, phrase, better in finds(prose(path, text)):
            print(f'{path}:{line}: "{phrase}" reads badly; better: {better}')
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
