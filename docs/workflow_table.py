"""Print the table of docs/workflows.md, of the verdicts on classes of scikit-learn."""

from skdp.privacy._scikit_learn import PREDICTOR, RULES, UNKNOWN


def as_markdown() -> str:
    """Write the table of verdicts, one class per line."""
    lines = ["| class | verdict | if, or use instead |", "|---|---|---|"]
    for (package, name), rule in RULES.items():
        said = f"leaks: {rule.objections[0].reads}" if rule.always_leaks else rule.verdict
        instead = rule.objections[0].instead if rule.always_leaks else rule.only_if
        prefix = "" if package == "sklearn" else f"{package}: "
        condition = instead if rule.always_leaks or not instead else f"if {instead}"
        lines.append(f"| {prefix}`{name}` | {said} | {condition} |")
    reads, instead = PREDICTOR.objections[0][:2]
    lines.append(f"| any other predictor of scikit-learn | leaks: {reads} | {instead} |")
    reads, instead = UNKNOWN.objections[0][:2]
    lines.append(f"| any other class | unknown: {reads} | {instead} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
