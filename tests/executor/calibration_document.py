"""Calibrates this machine with a small Llama, executes other plans of it, and writes the differences between predicted and
measured steps, with and without the calibration, into a page.

    calibration_document.py FSDP_PLAN PAGE [CLUSTER]

CLUSTER: a cluster file of an earlier calibration of this machine, instead of a new one.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

BEGIN = "<!-- calibration: made by ./scripts/calibration_proof -->"
END = "<!-- end of calibration -->"
REPETITIONS = 5
QUIET_CORES = 0.2  # The most that other programs may use while a plan runs; otherwise it runs again.
STEPS = "14"
CALIBRATED_SECONDS = "300"

# Sizes, units, checkpointing, micro-batches; each on 1 and on 2 ranks. The calibration's own are batch 1, 2, 4 with
# seq 64, 128, 256, units of 1 and 2 blocks and the root, and never checkpointing.
CASES = [
    ("batch 3, seq 96, units of 1 block", ["--batch", "3", "--seq", "96", "--wrap", "blocks"]),
    ("batch 2, seq 192, root", ["--batch", "2", "--seq", "192", "--wrap", "root"]),
    ("batch 3, seq 160, units of 3 blocks", ["--batch", "3", "--seq", "160", "--wrap", "3"]),
    ("batch 1, seq 224, full checkpointing", ["--batch", "1", "--seq", "224", "--wrap", "blocks",
                                              "--activation-checkpointing", "full"]),
    ("batch 3, seq 128, half of the blocks checkpointed", ["--batch", "3", "--seq", "128", "--wrap", "blocks",
                                                           "--activation-checkpointing", "full:3"]),
    ("batch 2, seq 96, 2 micro-batches", ["--batch", "2", "--seq", "96", "--wrap", "2", "--accumulate", "2",
                                          "--gradient-sync", "every"]),
    ("batch 4, seq 96, kept unsharded", ["--batch", "4", "--seq", "96", "--wrap", "blocks", "--reshard", "false"]),
    ("batch 3, seq 192, units of 2 blocks", ["--batch", "3", "--seq", "192", "--wrap", "2"]),
    ("batch 1, seq 160, clipped", ["--batch", "1", "--seq", "160", "--wrap", "3", "--clip-grad-norm", "1"]),
    ("batch 3, seq 224, root, full checkpointing", ["--batch", "3", "--seq", "224", "--wrap", "root",
                                                    "--activation-checkpointing", "full"]),
    ("batch 2, seq 160, selective checkpointing", ["--batch", "2", "--seq", "160", "--wrap", "blocks",
                                                   "--activation-checkpointing", "selective"]),
    ("batch 1, seq 96, 4 micro-batches", ["--batch", "1", "--seq", "96", "--wrap", "blocks", "--accumulate", "4",
                                          "--gradient-sync", "every"]),
]


def small_llama(library: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The Llama of the library with 6 layers of 256 channels and 4,096 tokens."""
    spec = json.loads((library / "llama3_2_1b.json").read_text())
    spec.pop("recipes", None)
    spec.pop("$schema", None)
    spec["name"] = "small Llama"
    spec["dimensions"] = {"batch": 2, "seq": 128}
    sizes = {"model.embed_tokens": {"vocab_size": 4096, "hidden_size": 256},
             "model.rotary_emb": {"head_dim": 32},
             "model.layers.{0..15}": {"name": "model.layers.{0..5}", "num_attention_heads": 8,
                                      "num_key_value_heads": 4, "intermediate_size": 768},
             "lm_head": {"vocab_size": 4096}}
    for module in spec["modules"]:
        module.update(sizes.get(module["name"], {}))
    path = folder / "small_llama.json"
    path.write_text(json.dumps(spec))
    return path


def run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")


def time_of(path: pathlib.Path) -> float:
    return json.loads(path.read_text())["time"]["step"]


def cpu_times() -> tuple[float, float]:
    """CPU seconds of the whole machine, and of the processes that this one has started."""
    user, nice, system, _, _, interrupts, soft = (int(x) for x in pathlib.Path("/proc/stat").read_text().split()[1:8])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK"), used.ru_utime + used.ru_stime


def execute(program: str, plan: pathlib.Path, cluster: pathlib.Path | None, folder: pathlib.Path) -> tuple[float, float]:
    """Predicted and measured seconds of a step."""
    known = [] if cluster is None else ["--cluster", str(cluster)]
    run([program, "execute", str(plan), "--steps", STEPS, "--quiet", "--run-dir", str(folder), *known])
    return time_of(folder / "predicted.json"), time_of(folder / "report-0.json")


def take_quiet(rows: list[dict], program: str, cluster: pathlib.Path, folder: pathlib.Path, until: float) -> None:
    """Runs each plan until it has its repetitions without other load, or the time is over; then uses the existing ones."""
    for turn in range(100):
        for number, row in enumerate(rows):
            quiet = [used for _, used in row["all"] if used <= QUIET_CORES]
            if len(quiet) >= REPETITIONS or (row["all"] and time.time() > until):
                continue
            began, (all_before, own_before) = time.time(), cpu_times()
            row["after"], measured = execute(program, row["plan"], cluster, folder / f"run{number}")
            all_after, own_after = cpu_times()
            others = max(0.0, all_after - all_before - own_after + own_before) / (time.time() - began)
            row["all"].append((measured, others))
            print(f"{turn} {row['ranks']} {row['name']}: {1e3 * measured:.1f} ms, predicted {1e3 * row['after']:.1f}, "
                  f"others {others:.2f}", file=sys.stderr, flush=True)
        if turn > 0 and time.time() > until:
            return


def table_of(rows: list[dict], cluster: pathlib.Path) -> str:
    machine = json.loads(cluster.read_text())["machine"]
    after = [abs(row["after"] / row["measured"] - 1) for row in rows]
    before = [abs(row["before"] / row["measured"] - 1) for row in rows]
    within = sum(error <= 0.1 for error in after)
    lines = [BEGIN,
             f"Measured on {machine[-1]['processor']} with {os.cpu_count()} cores, {machine[-1]['libraries']}, "
             f"{machine[-1]['measured_at']}. Of each plan the shortest of its {REPETITIONS} interleaved runs that others "
             f"disturbed least, as tables keep those of the fastest; they used up to {max(max(row['others']) for row in rows):.2f} cores meanwhile, and up to "
             f"{max(m['load'] for m in machine):.2f} during the calibration, which took "
             f"{sum(float(m['spent'].rstrip('s')) for m in machine):.0f} s.",
             "",
             f"**{within} of {len(rows)} plans are within 10 %**; the median error is "
             f"{100 * statistics.median(after):.1f} %, the largest {100 * max(after):.1f} %. Without a calibration the "
             f"median error is {100 * statistics.median(before):.0f} %.",
             "",
             "| ranks | plan | measured | spread | uncalibrated | calibrated | error |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        spread = f"{100 * (max(row['taken']) / min(row['taken']) - 1):.0f} %"
        lines.append(f"| {row['ranks']} | {row['name']} | {1e3 * row['measured']:.1f} ms | {spread} | "
                     f"{1e3 * row['before']:.1f} ms | {1e3 * row['after']:.1f} ms | "
                     f"{100 * (row['after'] / row['measured'] - 1):+.1f} % |")
    return "\n".join([*lines, END])


def write_page(page: pathlib.Path, table: str) -> None:
    text = page.read_text()
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    page.write_text(text[:begin] + table + text[end:])


def main() -> None:
    program, page = sys.argv[1], pathlib.Path(sys.argv[2])
    library = pathlib.Path(__file__).resolve().parents[2] / "model_specs"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = small_llama(library, folder)
        cluster = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else folder / "cluster.json"
        if len(sys.argv) <= 3:
            run([program, "calibrate", str(model), "--precision", "fp32", "--gpus", "2", "--seconds", CALIBRATED_SECONDS, "-o",
                 str(cluster)])
        rows = []
        for ranks in (1, 2):
            for case, options in CASES:
                plan = folder / f"{len(rows)}.json"
                run([program, str(model), "--precision", "fp32", "--gpus", str(ranks), "--mem", "8G", *options, "-o",
                     str(plan), "--quiet"])
                rows.append({"ranks": ranks, "name": case, "plan": plan, "all": []})
        for number, row in enumerate(rows):
            row["before"], _ = execute(program, row["plan"], None, folder / f"before{number}")
        take_quiet(rows, program, cluster, folder, time.time() + float(os.environ.get("FSDP_PROOF_SECONDS", "1200")))
        for row in rows:
            best = sorted(row["all"], key=lambda pair: pair[1])[:REPETITIONS]
            row["taken"] = [seconds for seconds, _ in best]
            row["others"] = [used for _, used in best]
            row["measured"] = min(row["taken"])
        table = table_of(rows, cluster)
    write_page(page, table)
    print(table)


if __name__ == "__main__":
    main()
