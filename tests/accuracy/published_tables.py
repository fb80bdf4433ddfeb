"""The tables of docs/tables/published_runs.md, and the verdict of docs/accuracy.md, worst first, with what is known of the reason."""

from __future__ import annotations

import statistics

import published_scores as scores
from published_runs import ANSWERS, GIB, Prediction, Run

WORST = 10

# What is known of a row that is far off. The first that applies; a table says where there is none.
_FOUNDRY = "mosaicml/llm-foundry"
TABLE_OF_MEMORY = "foundation-model-stack/fms-acceleration"  # Has one line here, since its figures are equal.
REASONS: list[tuple[str, str, str, str]] = [
    # project, model, part of the name, reason
    ("daddyofadoggy/blog", "Qwen3-32B", "HSDP", "as the prediction says, it must empty its cache; what that takes is not predicted"),
    ("Lightning-AI/litgpt", "", "DDP", "not known: it is 27 % slower than the same source's run on one GPU, and an all-reduce takes 3 %"),
    (_FOUNDRY, "MPT-1b", "32 x", "an outlier of the source: 17 % or more below its own runs on 16, 64 and 128 GPUs"),
    (_FOUNDRY, "MPT-760m", "2 x 48 x 1024", "an outlier of the source: slower than at 2048 tokens, on its other cards faster"),
    (_FOUNDRY, "MPT-760m", "2 x 96 x 512", "an outlier of the source: slower than at 2048 tokens, on its other cards faster"),
    (_FOUNDRY, "MPT-70b", "64 x", "not known: the source's own run on 128 GPUs with twice the batch is 36 % faster"),
    (_FOUNDRY, "MPT-30b", "1 x 8192", "not known: the source's MFU falls by 12 points from 4096 to 8192 tokens on A100, by 6 on H100"),
    (_FOUNDRY, "MPT-13b", "8 x A100 40GB", "not known"),
]  # fmt: skip
MEMORY_REASONS: list[tuple[str, str, str, str]] = [
    ("pytorch/torchtitan", "", "FSDP1", "the least is predicted, and it lies between that and the most, which is rehearsed: 42.5 reserved, 31.9 active"),
    ("pytorch/torchtitan", "", "", "not known; the real PyTorch 2.11, rehearsed with this plan, reserves what is predicted"),
    ("Lightning-AI/litgpt", "", "", "not known; 2.1 GiB in all three runs of this code"),
    ("daddyofadoggy/blog", "", "", "published in whole percent; checkpointing is not stated"),
]  # fmt: skip


def reason(run: Run, reasons: list[tuple[str, str, str, str]]) -> str:
    for project, model, part, why in reasons:
        if run.project == project and run.model.startswith(model) and part in run.name:
            return why
    return "not known"


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


def verdict(predictions: list[Prediction]) -> list[str]:
    times, timed = scores.eager(predictions), scores.errors(p.ratio - 1 for p in scores.eager(predictions))
    reserved = scores.errors(p.reserved_error for p in scores.with_reserved(predictions))
    allocated = scores.errors(p.allocated_error for p in scores.with_allocated(predictions))
    wrong, tight = scores.wrongly_fits(predictions), scores.tight(predictions)
    ran = [p for p in predictions if p.run.is_eager and p.run.outcome == "ran"]
    failed = [p for p in predictions if p.run.outcome != "ran"]
    refused = len(scores.wrongly_refused(predictions))
    return [
        "| | published runs | mean error | median | bias | target |", "|---|---:|---:|---:|---:|---|",
        f"| tokens a second, eager | {timed.number} | {percent(timed.mean_absolute)} | {percent(timed.median_absolute)} | "
        f"{signed(timed.bias)} | at most 10 %: {_met(timed.mean_absolute <= 0.10)} |",
        f"| order of plans, by model and cluster | {sum(n for n, _ in scores.rank_correlations(times).values())} | "
        f"correlation {scores.mean_rank_correlation(times):.2f} | | | at least 0.9: {_met(scores.mean_rank_correlation(times) >= 0.9)} |",
        f"| memory reserved, eager | {reserved.number} | {percent(reserved.mean_absolute)} | {percent(reserved.median_absolute)} | "
        f"{signed(reserved.bias)} | at most 5 %: {_met(reserved.mean_absolute <= 0.05)} |",
        f"| memory allocated, eager | {allocated.number} | {percent(allocated.mean_absolute)} | {percent(allocated.median_absolute)} | "
        f"{signed(allocated.bias)} | |", "",
        f"Inside the printed range of times: {percent(scores.inside(times), 0)}. Of {len(failed)} that ran out of memory: \"fits\" {len(wrong)}, "
        f"tight {sum(p.runs for p in failed) - len(wrong)}, \"does not fit\" {sum(not p.runs for p in failed)}. Of {len(ran)} that ran: "
        f"\"does not fit\" {refused}, tight {len(tight)}.",
    ]  # fmt: skip


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def groups(predictions: list[Prediction]) -> list[str]:
    lines = ["| GPU, source, FSDP, size | runs | tokens/s, predicted over published: median | least | most | inside |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for name, group in scores.grouped(scores.eager(predictions), lambda p: p.run.group).items():
        ratios = [p.ratio for p in group]
        within = sum(p.is_inside for p in group)
        lines.append(f"| {name} | {len(group)} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {within} |")
    return lines


def several_nodes(predictions: list[Prediction], alike: list[Prediction]) -> list[str]:
    """By card and nodes: what waiting for the slowest node explains. One node is there to compare with."""
    lines = ["| GPU, source, nodes | runs | tokens/s, predicted over published: median | as if nodes were alike | mean error | as if alike |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    same = {p.run: p for p in alike}
    sources = {p.run.table for p in alike}

    def row(name: str, group: list[Prediction]) -> str:
        others = [same.get(p.run, p) for p in group]
        medians = [f"{statistics.median(p.ratio for p in each):.2f}" for each in (group, others)]
        errors = [percent(scores.errors(p.ratio - 1 for p in each).mean_absolute) for each in (group, others)]
        return f"| {name} | {len(group)} | {' | '.join(medians + errors)} |"

    chosen = [p for p in predictions if p.run.table in sources and p.run.gpus_per_node == 8]
    for name, group in scores.grouped(chosen, lambda p: f"{p.run.gpu}, {p.run.project.split('/')[1]}, {p.run.nodes:2}").items():
        lines.append(row(" ".join(name.split()), group))
    several = [p for p in predictions if p.run.nodes > 1]
    return [*lines, row("several nodes, all", several)]


def worst(predictions: list[Prediction]) -> list[str]:
    lines = ["| worst ten: accumulation x batch x sequence | tokens/s, predicted | inside | reason |", "|---|---:|---|---|"]
    rows = sorted(scores.eager(predictions), key=lambda p: (-abs(p.ratio - 1), p.run.name))[:WORST]
    return lines + [f"| {p.run.name} | {signed(p.ratio - 1)} | {'yes' if p.is_inside else 'no'} | {reason(p.run, REASONS)} |" for p in rows]


def held_back(predictions: list[Prediction]) -> list[str]:
    """Each source beside a band from the others, and the printed one."""
    times = scores.eager(predictions)
    lines = ["| source held back | runs | mean error | band of the others | inside it | inside the printed range |", "|---|---:|---:|---|---:|---:|"]
    for name, group in scores.grouped(times, lambda p: p.run.table).items():
        low, high = scores.quantile_band([p for p in times if p.run.table != name])
        error = scores.errors(p.ratio - 1 for p in group)
        lines.append(f"| {name} | {len(group)} | {percent(error.mean_absolute)} | {low:.2f} to {high:.2f} | "
                     f"{percent(scores.share_within(group, (low, high)), 0)} | {percent(scores.inside(group), 0)} |")  # fmt: skip
    return lines


def ranks(predictions: list[Prediction]) -> str:
    found = scores.rank_correlations(scores.eager(predictions))
    low = sorted((figure, name, number) for name, (number, figure) in found.items() if figure < 0.95)
    named = "; ".join(f"{name} ({number} plans) {figure:.2f}" for figure, name, number in low)
    return f"The order of plans is that which was published in {len(found) - len(low)} of {len(found)} groups of three plans or more. Others: {named}."


def memory(predictions: list[Prediction]) -> list[str]:
    lines = ["| run: accumulation x batch x sequence | | published GiB | predicted | error | reason |", "|---|---|---:|---:|---:|---|"]
    rows = [(p.reserved_error, "reserved", p.run.reserved_gib, p.reserved, p) for p in scores.with_reserved(predictions)]
    rows += [(p.allocated_error, "allocated", p.run.allocated_gib, p.allocated, p) for p in scores.with_allocated(predictions)
             if p.run.project != TABLE_OF_MEMORY]  # fmt: skip
    for error, kind, published, predicted, p in sorted(rows, key=lambda row: (-abs(row[0]), row[1], row[4].run.name)):
        why = reason(p.run, MEMORY_REASONS) if abs(error) > 0.03 else ""
        lines.append(f"| {p.run.name} | {kind} | {published:.2f} | {predicted / GIB:.2f} | {signed(error)} | {why} |")
    table = [p.allocated_error for p in scores.with_allocated(predictions) if p.run.project == TABLE_OF_MEMORY]
    return [*lines, "", f"The {len(table)} runs of {TABLE_OF_MEMORY} without autocast, all with checkpointing full: allocated "
            f"{signed(min(table))} to {signed(max(table))}."]  # fmt: skip


def margins(predictions: list[Prediction]) -> list[str]:
    """How far above the prediction runs were, by what the margin goes by, and of how many it has that."""
    lines = ["| published device or reserved memory | runs | over predicted: least | median | 19 of 20 within | most | margin over predicted: least | inside it |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    known = scores.with_margin(predictions)
    for name, group in [*scores.grouped(known, lambda p: p.kind).items(), ("all", known)]:
        over = [p.over for p in group]
        figures = (min(over), statistics.median(over), scores.quantile(over, 0.95), max(over), min((p.margin - p.held) / p.reserved for p in group))
        lines.append(f"| {name} | {len(group)} | {' | '.join(signed(figure) for figure in figures)} | {len(scores.inside_the_margin(group))} |")
    allocated = [-p.allocated_error / (1 + p.allocated_error) for p in scores.with_allocated(predictions)]
    sources = {p.run.table for p in scores.with_allocated(predictions)}
    return [*lines, "", f"Allocated memory, which is what expandable segments reserve: {len(allocated)} runs of {len(sources)} sources, over predicted "
            f"{signed(min(allocated))} to {signed(max(allocated))}, median {signed(statistics.median(allocated))}; "
            f"{sum(a <= 0.03 for a in allocated)} within 3 %."]  # fmt: skip


def fits(predictions: list[Prediction]) -> list[str]:
    answers = (*ANSWERS.values(), "does not fit")
    lines = [f"| source of eager runs | ran | {' | '.join(answers)} |", "|---|---:|---:|---:|---:|---:|---:|"]
    ran = [p for p in predictions if p.run.is_eager and p.run.outcome == "ran"]
    for name, group in scores.grouped(ran, lambda p: p.run.table).items():
        counts = " | ".join(str(sum(p.answer == answer for p in group)) for answer in answers)
        lines.append(f"| {name} | {len(group)} | {counts} |")
    return lines


def compiled(predictions: list[Prediction]) -> list[str]:
    lines = ["| card, source, with torch.compile | runs | published tokens/s over the eager prediction: median | least | most |", "|---|---:|---:|---:|---:|"]
    for name, group in scores.grouped(scores.compiled(predictions), lambda p: f"{p.run.gpu}, {p.run.project.split('/')[1]}").items():
        factors = [1 / p.ratio for p in group]
        lines.append(f"| {name} | {len(group)} | {statistics.median(factors):.2f} | {min(factors):.2f} | {max(factors):.2f} |")
    return lines


def rows(predictions: list[Prediction]) -> list[str]:
    """Every run, for a reader of one: errors of time and memory, and the answer."""
    lines = ["source;run;compiled;tokens/s;inside;reserved;allocated;answer;outcome"]
    for p in predictions:
        time = (signed(p.ratio - 1), "yes" if p.is_inside else "no") if p.run.is_timed else ("", "")
        reserved = signed(p.reserved_error) if p.run.reserved_gib else ""
        allocated = signed(p.allocated_error) if p.run.allocated_gib else ""
        lines.append(";".join((p.run.table, p.run.name, p.run.compiled, *time, reserved, allocated, p.answer, p.run.outcome)))
    return lines
