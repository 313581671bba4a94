"""exposed.py FOLDER BYTES: of a run whose steps put BYTES on a link of 1 Gb/s: what a step waits, its backward and its forward pass,
as parts of the time that its bytes take."""
import json
import statistics
import sys

folder, link_bytes = sys.argv[1], int(sys.argv[2])
with open(folder + "/metrics.jsonl", encoding="utf-8") as lines:
    waits = [json.loads(line)["collective_ms"] for line in lines]
with open(folder + "/trace.json", encoding="utf-8") as file:
    spans = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "phase"]
communication = link_bytes / len(waits) / 125e6 * 1e3
phase = {
    name: statistics.median(span["dur"] / 1e3 for span in spans if span["name"] == name) for name in ("backward", "forward")
}
parts = (statistics.median(waits[10:]), phase["backward"], phase["forward"])
print(", ".join(f"{part / communication:.2f}" for part in parts), f"of {communication:.0f} ms")
