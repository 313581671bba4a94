"""Compares HR@10 of two models on the users of one group, from what `tandem eval --dump` wrote of each.

usage: paired_bootstrap.py LOG COLD_BELOW cold|warm|all DUMP_A DUMP_B
Prints the users, both figures, the difference A - B, and the bounds of its 95 % interval over resampled users.
"""
import random
import sys


def hits_of(path):
    with open(path, encoding="utf-8") as file:
        fields = [line.rstrip("\n").split("\t") for line in file]
    return {user: float(rank) <= 10 for user, _, rank, _ in fields}, {user: target for user, target, _, _ in fields}


def main():
    log, cold_below, group, path_a, path_b = sys.argv[1:]
    counts = {}
    with open(log, encoding="utf-8") as file:
        for line in file:
            for item in line.split()[1:-2]:
                counts[item] = counts.get(item, 0) + 1
    a, targets = hits_of(path_a)
    b, _ = hits_of(path_b)
    users = [u for u in a if group == "all" or (counts.get(targets[u], 0) < int(cold_below)) == (group == "cold")]
    differences = [a[u] - b[u] for u in users]
    draw = random.Random(1)
    means = sorted(sum(draw.choices(differences, k=len(users))) / len(users) for _ in range(4000))
    hits = [sum(m[u] for u in users) / len(users) for m in (a, b)]
    print("%d %.4f %.4f %.4f %.4f %.4f" % (len(users), *hits, hits[0] - hits[1], means[100], means[3899]))


main()
