#!/usr/bin/env python3
"""Reads trace.json of a run with a pipeline: timeline.py TRACE SCHEDULE RANKS MICROBATCHES.

Prints how many steps it found, how many of the ranks' lists are in the order of the schedule, and the bubble: the idle part of the
longest list, on the rank that is idle longest. Knows the order of ONE_F_ONE_B and ZB_H1 by itself."""
import json
import re
import sys


def order(schedule, rank, ranks, microbatches):
    warm_up = min(ranks - 1 - rank, microbatches)
    ops = [f"F{m}" for m in range(warm_up)]
    for m in range(microbatches):
        if m + warm_up < microbatches:
            ops.append(f"F{m + warm_up}")
        if schedule == "ONE_F_ONE_B":
            ops.append(f"BW{m}")
        else:
            ops.append(f"B{m}")
            if m >= rank:
                ops.append(f"W{m - rank}")
    if schedule == "ZB_H1":
        ops += [f"W{m}" for m in range(max(0, microbatches - rank), microbatches)]
    return ops


def main():
    path, schedule, ranks, microbatches = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    events = json.load(open(path))["traceEvents"]
    role_of = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    spans = {}  # by rank: (begin, end, operation, stage)
    waits = messages = 0
    for event in events:
        role = role_of.get(event["pid"], "")
        if event.get("ph") != "X" or not role.startswith("trainer-"):
            continue
        waits += event["name"].startswith("wait ")
        messages += event["name"] in ("send", "receive", "recv")
        found = re.fullmatch(r"((?:F|BW|B|W)\d+) stage (\d+)", event["name"])
        if found:
            spans.setdefault(int(role[8:]), []).append(
                (event["ts"], event["ts"] + event["dur"], found[1], int(found[2])))
    right = steps = busy = seconds = 0
    idle = [0.0] * ranks
    wanted = [order(schedule, r, ranks, microbatches) for r in range(ranks)]
    steps = min((len(spans.get(r, [])) // len(wanted[r]) for r in range(ranks)), default=0)
    total = 0.0
    for rank in range(ranks):
        spans.get(rank, []).sort()
    for step in range(steps):
        lists = [spans[r][step * len(wanted[r]):(step + 1) * len(wanted[r])] for r in range(ranks)]
        begin, end = min(l[0][0] for l in lists), max(l[-1][1] for l in lists)
        total += end - begin
        for rank, ops in enumerate(lists):
            right += [o[2] for o in ops] == wanted[rank] and all(o[3] == rank for o in ops)
            idle[rank] += end - begin - sum(o[1] - o[0] for o in ops)
    bubble = max(idle) / total if total else -1
    print(steps, right, f"{bubble:.4f}", waits, messages)


main()
