"""Answers questions with the public implementation, one JSON line for each line of the input file.

Started by the test beside it, in a virtual environment that has agent-governance-toolkit-core.
"""

import fnmatch
import json
import logging
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import yaml  # noqa: E402
from agent_os.policies.conflict_resolution import (  # noqa: E402
    CandidateDecision,
    ConflictResolutionStrategy,
    PolicyConflictResolver,
)
from agent_os.policies.evaluator import PolicyEvaluator  # noqa: E402
from agent_os.policies.schema import PolicyDocument  # noqa: E402


def shown(decision):
    return {
        "action": decision.action,
        "allowed": decision.allowed,
        "rule": decision.matched_rule,
        "error": "evaluation error" in decision.reason,
    }


def decide(case):
    document = PolicyDocument.model_validate(yaml.safe_load(case["document"]))
    return shown(PolicyEvaluator(policies=[document]).evaluate(case["context"]))


def folder(case):
    root = Path(tempfile.mkdtemp(prefix="belljar-oracle-"))
    try:
        place = root
        for index, text in enumerate(case["documents"]):
            if index:
                place = place / f"d{index}"
                place.mkdir()
            (place / "governance.yaml").write_text(text)
        target = place / case["file"]
        evaluator = PolicyEvaluator(root_dir=root)
        answer = shown(evaluator.evaluate({**case["context"], "path": str(target)}))
        return {**answer, "path": str(target.relative_to(root))}
    finally:
        shutil.rmtree(root)


def resolve(case):
    candidates = [CandidateDecision(**candidate) for candidate in case["candidates"]]
    resolver = PolicyConflictResolver(ConflictResolutionStrategy(case["strategy"]))
    return {"rule": resolver.resolve(candidates).winning_decision.rule_name}


def pattern(case):
    try:
        return {"found": bool(re.search(case["pattern"], case["text"]))}
    except re.error:
        return {"found": None}


def glob(case):
    return {"found": fnmatch.fnmatch(case["text"], case["pattern"])}


def word(case):
    value = yaml.safe_load("k: " + case["word"])["k"]
    return {"kind": type(value).__name__, "text": str(value)}


KINDS = {f.__name__: f for f in (decide, folder, resolve, pattern, glob, word)}


def main():
    with open(sys.argv[1], encoding="utf-8") as cases:
        for line in cases:
            case = json.loads(line)
            try:
                answer = KINDS[case["kind"]](case)
            except Exception as error:  # noqa: BLE001: told to the test, which decides
                answer = {"raised": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer))


if __name__ == "__main__":
    main()
