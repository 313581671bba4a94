"""sync.py choices|bytes FILE: what a sweep of tandem bench sync (--json) shows, a row a line: what|wanted|measured|pass, MISS or -."""
import json
import statistics
import sys


def pairs_of(points):
    """Both ways of each measured point of the sweep. Probes, on which the model was fitted, are left out."""
    swept = [point for point in points if not point["fitted"]]
    return [pair for pair in zip(swept[::2], swept[1::2]) if all(point["measured"] for point in pair)]


def preferred_ratio(pair):
    """The measured time of the way that the model prefers, over the faster one's."""
    chosen = min(pair, key=lambda point: point["predicted_microseconds"])
    return chosen["microseconds"] / min(point["microseconds"] for point in pair)


def error_of(point):
    return abs(point["predicted_microseconds"] / point["microseconds"] - 1)


def name_of(point):
    share = "" if point["what"] == "dense" else f" {point['share']:.2%} {point['ids']}"
    members = f"{point['trainers']}+{point['servers']}"
    return f"{point['way']} {point['what']} {point['bytes'] / 2**20:g} MB{share} {members} {point['link']}"


def row(what, wanted, measured, verdict="-"):
    print(f"{what}|{wanted}|{measured}|{verdict}")


def verdict(passes):
    return "pass" if passes else "MISS"


def choices(points):
    pairs = pairs_of(points)
    for name, links in (("capped links", ("1gbit", "100mbit")), ("shm and tcp", ("shm", "tcp"))):
        some = [pair for pair in pairs if pair[0]["link"] in links]
        if not some:
            row(f"{name}: points", "", "none", "skipped")
            continue
        capped = links[0] == "1gbit"
        ratios = [preferred_ratio(pair) for pair in some]
        good = sum(ratio <= 1.25 for ratio in ratios) / len(ratios)
        if capped:
            row(f"{name}: points, measured both ways, that the fit did not see", ">= 40", len(some), verdict(len(some) >= 40))
        row(f"{name}: preferred way at most 1.25 times the faster one's time", ">= 80 % of the points",
            f"{good:.0%} of {len(some)}", verdict(good >= 0.8) if capped else "-")
        row(f"{name}: worst preferred way over the faster one (aim <= 2)", "", f"{max(ratios):.2f}")
        errors = sorted(error_of(point) for pair in some for point in pair)
        row(f"{name}: error of the model, median (aim .25), nine in ten (aim .60)", "",
            f"{statistics.median(errors):.2f}, {errors[int(0.9 * len(errors))]:.2f}")
    worst = sorted((point for pair in pairs for point in pair), key=error_of, reverse=True)[:5]
    for point in worst:
        row(f"worst: {name_of(point)}", "", f"{point['microseconds']:.0f} us, model {point['predicted_microseconds']:.0f} "
            f"({point['limit']})")
    row("all weights right", "yes", "yes" if all(point["correct"] is not False for point in points) else "NO",
        verdict(all(point["correct"] is not False for point in points)))


def counted_bytes(points):
    for name, links, margin in (("shm and tcp, by the transports' counters", ("shm", "tcp"), 0.02),
                                ("capped links, by the interfaces' counters", ("1gbit", "100mbit"), 0.1)):
        differences = []
        for point in points:
            if point["link"] not in links or not point["measured"] or point["bytes"] < 1 << 20 or point["trainers"] < 2:
                continue
            if point["what"] == "table" and point["way"] == "ps" and point["share"] < 0.99:
                continue  # fewer bytes than 1 MB move
            for member in ("trainer", "server"):
                formula = point[f"bytes_per_{member}_by_formula"]
                if formula:
                    differences.append(abs(point[f"bytes_per_{member}"] / formula - 1))
        if not differences:
            row(f"bytes, {name}", "", "none", "skipped")
            continue
        row(f"bytes beside the formulas, {name}: worst of {len(differences)}", f"<= {margin:.0%}", f"{max(differences):.2%}",
            verdict(max(differences) <= margin))


with open(sys.argv[2], encoding="utf-8") as file:
    {"choices": choices, "bytes": counted_bytes}[sys.argv[1]](json.load(file))
