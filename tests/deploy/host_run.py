"""Runs `tandem launch` on this machine, for what a cluster's run must equal."""

import json
import os
import re
import subprocess

import manifests


class HostRun:
    """A finished run of `launch` with the job, the arguments and the data of rendered objects."""

    def __init__(self, binary, objects, folder, data=None):
        os.makedirs(folder)
        job = os.path.join(folder, "job.textproto")
        with open(job, "w") as file:
            file.write(manifests.job_file(objects))
        path = os.path.join(folder, "data.txt")
        if data is None:
            subprocess.run([binary, *manifests.synthesize_args(objects), f"--out={path}"],
                           check=True, stdout=subprocess.DEVNULL)
        else:
            with open(path, "wb") as file:
                file.write(data)
        self.out = os.path.join(folder, "run")
        done = subprocess.run(
            [binary, "launch", job, *manifests.launch_args(objects), f"--set=data.path={path}",
             f"--out={self.out}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"launch on this machine failed: {done.stdout[-2000:]}")
        self.log = done.stdout
        with open(os.path.join(self.out, "summary.json")) as file:
            self.summary = json.load(file)
        with open(os.path.join(self.out, "metrics.jsonl"), "rb") as file:
            self.losses = losses(file.read())


def losses(metrics):
    """Returns {step: loss} of the bytes of a metrics.jsonl."""
    lines = [json.loads(line) for line in metrics.decode().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def figures(log):
    """Returns what a log shows of the test split, such as "hr@10 0.7029, ndcg@10 0.3930"."""
    lines = [line.split() for line in log.splitlines() if re.match(r" *(hr|ndcg)@\d+ ", line)]
    return ", ".join(" ".join(words[:2]) for words in lines)
