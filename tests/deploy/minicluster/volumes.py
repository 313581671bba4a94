"""Makes a pod's volumes as folders of this machine, owned and with modes as a kubelet does."""

import base64
import os
import shutil
import stat
import threading

from .machine import ClusterError, command, mounts_below, quantity

MOUNTING = threading.Lock()  # pods share claims, and are made at the same time


class NotThereYet(Exception):
    """An object that a pod mounts does not exist; the pod waits for it."""


class Volumes:
    """The volumes of one pod. Folder `claims` outlives the pod; all else goes with it."""

    def __init__(self, spec, namespace, objects, folder, claims):
        self._namespace = namespace
        self._objects = objects
        self._folder = folder
        self._claims = claims
        self._group = spec.get("securityContext", {}).get("fsGroup")
        self._policy = spec.get("securityContext", {}).get("fsGroupChangePolicy", "Always")
        self._made = {}  # name -> (folder, read-only)
        try:
            for volume in spec.get("volumes", []):
                self._made[volume["name"]] = self._make(volume)
        except BaseException:
            self.close()
            raise

    def source(self, mount):
        """Returns (path on this machine, read-only) of an entry of volumeMounts."""
        if mount["name"] not in self._made:
            raise ClusterError(f"volumeMounts names \"{mount['name']}\", which no volume has")
        folder, read_only = self._made[mount["name"]]
        if mount.get("subPath"):
            folder = os.path.realpath(os.path.join(folder, mount["subPath"]))
            if not os.path.exists(folder):
                raise ClusterError(f"subPath {mount['subPath']} is not in {mount['name']}")
        return folder, read_only or mount.get("readOnly", False)

    def close(self):
        for point in mounts_below(self._folder):
            command("umount", point, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self, volume):
        name = volume["name"]
        folder = os.path.join(self._folder, name)
        if "configMap" in volume:
            data = self._object("ConfigMap", volume["configMap"]["name"]).get("data", {})
            content = {key: text.encode() for key, text in data.items()}
            return self._write(folder, content, volume["configMap"]), True
        if "secret" in volume:
            secret = self._object("Secret", volume["secret"]["secretName"])
            return self._write(folder, secret_content(secret), volume["secret"]), True
        if "emptyDir" in volume:
            return self._empty(folder, volume["emptyDir"] or {}), False
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]
            self._object("PersistentVolumeClaim", claim["claimName"])
            return self._claim(claim["claimName"]), claim.get("readOnly", False)
        raise ClusterError(f"volume {name} is of a kind that the mini-cluster does not know")

    def _object(self, kind, name):
        found = self._objects.get((kind, self._namespace, name))
        if found is None:
            raise NotThereYet(f"{kind} {self._namespace}/{name} does not exist")
        return found

    def _write(self, folder, content, source):
        """Writes files as kubelets do: each is a link into a folder that is replaced as a whole."""
        os.makedirs(os.path.join(folder, "..1"))
        os.symlink("..1", os.path.join(folder, "..data"))
        items = source.get("items") or [{"key": key, "path": key} for key in content]
        mode = source.get("defaultMode", 0o644)
        for item in items:
            if item["key"] not in content:
                raise ClusterError(f"{folder}: there is no key {item['key']}")
            path = os.path.join(folder, "..1", item["path"])
            with open(path, "wb") as file:
                file.write(content[item["key"]])
            os.chmod(path, mode)
            os.symlink(os.path.join("..data", item["path"]), os.path.join(folder, item["path"]))
        self._give_to_group(folder, 0o440)
        return folder

    def _empty(self, folder, source):
        os.makedirs(folder)
        if source.get("medium") == "Memory":
            size = source.get("sizeLimit")
            options = ["-o", f"size={int(quantity(size))}"] if size else []
            command("mount", "-t", "tmpfs", *options, "tandem-minicluster", folder)
        os.chmod(folder, 0o777)
        self._give_to_group(folder, 0o660)
        return folder

    def _claim(self, name):
        folder = os.path.join(self._claims, self._namespace, name)
        with MOUNTING:
            make_claim(folder)
            top = os.stat(folder)
            matches = self._group == top.st_gid and top.st_mode & 0o2770 == 0o2770
            if not (self._policy == "OnRootMismatch" and matches):
                self._give_to_group(folder, 0o660)
        return folder

    def _give_to_group(self, folder, mask):
        """Gives all below a folder to fsGroup, and adds the mask's bits to each mode."""
        if self._group is None:
            return
        entries = [folder]
        for top, folders, files in os.walk(folder):
            entries += [os.path.join(top, entry) for entry in folders + files]
        for path in entries:
            if not os.path.lexists(path):
                continue  # a pod that shares the claim has just removed it
            os.chown(path, -1, self._group, follow_symlinks=False)
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                os.chmod(path, stat.S_IMODE(mode) | mask | 0o110 | stat.S_ISGID)
            elif stat.S_ISREG(mode):
                os.chmod(path, stat.S_IMODE(mode) | mask)


def make_claim(folder):
    """Makes the folder of a claim as a fresh file system is: only fsGroup opens it to others."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
        os.chmod(folder, 0o755)


def secret_content(secret):
    """Returns a Secret's keys and bytes."""
    content = {key: base64.b64decode(text) for key, text in secret.get("data", {}).items()}
    content.update({key: text.encode() for key, text in secret.get("stringData", {}).items()})
    return content
