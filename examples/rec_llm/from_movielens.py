#!/usr/bin/env python3
"""Makes the two files of a job from MovieLens: sequences.txt (user item item ..., oldest first) and items.tsv (item, title).

usage: from_movielens.py ratings.csv movies.csv FOLDER
"""
import csv
import os
import sys


def rows_of(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    ratings, movies, folder = sys.argv[1:]
    histories = {}
    for place, row in enumerate(rows_of(ratings)):
        # Ratings of one second stay in the order of the file.
        histories.setdefault(row["userId"], []).append((int(row["timestamp"]), place, row["movieId"]))
    rated = {item for history in histories.values() for _, _, item in history}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "sequences.txt"), "w", encoding="utf-8") as out:
        for user, history in histories.items():
            out.write(" ".join([user] + [item for _, _, item in sorted(history)]) + "\n")
    with open(os.path.join(folder, "items.tsv"), "w", encoding="utf-8") as out:
        for row in rows_of(movies):
            if row["movieId"] in rated:
                out.write(row["movieId"] + "\t" + " ".join(row["title"].split()) + "\n")
    print("%d users, %d items in %s" % (len(histories), len(rated), folder))


if __name__ == "__main__":
    main()
