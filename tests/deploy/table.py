"""Collects what was shown: a row each with what, wanted, measured and the verdict."""

import sys


class Table:
    def __init__(self):
        self._rows = []

    def row(self, what, wanted, measured, passed):
        """Adds a row. `passed`: True, False, or a string for what was not tried."""
        verdict = passed if isinstance(passed, str) else "passed" if passed else "MISSED"
        self._rows.append((what, str(wanted), str(measured), verdict))
        print(f"   {what}: {measured} ({wanted}) {verdict}", file=sys.stderr, flush=True)

    def equal(self, what, wanted, measured):
        self.row(what, wanted, measured, measured == wanted)

    @property
    def num_missed(self):
        return sum(row[3] == "MISSED" for row in self._rows)

    def print(self):
        """Prints the table; nothing if it has no row."""
        if not self._rows:
            return
        rows = [("what", "wanted", "measured", "")] + self._rows
        widths = [max(len(row[at]) for row in rows) for at in range(3)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) + "  " + row[3])
        if self.num_missed:
            print(f"{self.num_missed} of {len(self._rows)} missed")
        else:
            print("nothing missed")
