"""Makes the root of a container: this machine's /usr read-only, and the binary under test."""

import os
import shutil

NAMES_OF_USERS = """root:x:0:0:root:/root:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
tandem:x:65532:65532:tandem:/tmp:/usr/sbin/nologin
"""
NAMES_OF_GROUPS = "root:x:0:\nnogroup:x:65534:\ntandem:x:65532:\n"
FOLDERS = ["etc", "usr", "proc", "sys", "dev", "tmp", "run", "var", "root", "home"]
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


class Image:
    """Stands for every image of the render. Keeps a copy of the binary, as an image would."""

    def __init__(self, folder, binary):
        self._local = os.path.join(folder, "usr-local")
        os.makedirs(os.path.join(self._local, "bin"))
        shutil.copy(binary, os.path.join(self._local, "bin", "tandem"))
        os.chmod(os.path.join(self._local, "bin", "tandem"), 0o755)

    def make_root(self, root):
        """Fills a fresh folder with what a container has as /."""
        os.makedirs(root)
        for name in FOLDERS:
            os.mkdir(os.path.join(root, name))
        os.chmod(os.path.join(root, "tmp"), 0o1777)
        for name, target in LINKS.items():
            if os.path.isdir("/" + target):
                os.symlink(target, os.path.join(root, name))
        etc = {"passwd": NAMES_OF_USERS, "group": NAMES_OF_GROUPS,
               "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
               "hosts": "", "resolv.conf": "", "hostname": ""}
        for name, text in etc.items():
            with open(os.path.join(root, "etc", name), "w") as file:
                file.write(text)
        shutil.copy("/etc/ld.so.cache", os.path.join(root, "etc", "ld.so.cache"))
        if os.path.isdir("/etc/alternatives"):
            shutil.copytree("/etc/alternatives", os.path.join(root, "etc", "alternatives"),
                            symlinks=True)

    def mounts(self):
        """Returns what of this machine is mounted into every root."""
        return [bind("/usr", "/usr", read_only=True),
                bind(self._local, "/usr/local", read_only=True)]


def bind(source, destination, read_only):
    options = ["rbind", "nosuid", "nodev", "ro" if read_only else "rw"]
    return {"source": source, "destination": destination, "type": "bind", "options": options}
