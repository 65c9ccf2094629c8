"""A second S3 server: Ceph's gateway before a cluster of one monitor and one disk in memory."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.programs import Missing
from tests.servers.servers import LOCAL, S3Server, Server, die_with_parent, free_port, fresh_folder, running

PROGRAMS = ("monmaptool", "ceph-mon", "ceph-osd", "ceph", "radosgw-admin", "radosgw")
SETTINGS = """
[global]
fsid = {fsid}
mon host = {monitor}
public network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
mon allow pool size one = true
osd pool default size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
mon data avail crit = 1
mon data = {here}/mon
osd data = {here}/osd
mon cluster log file = {here}/cluster.log
log file = {here}/$name.log
pid file = {here}/$name.pid
admin socket = {here}/$name.asok
keyring = {here}/keyring
[client.rgw]
rgw frontends = beast endpoint={endpoint}
"""


@contextmanager
def gateway() -> Iterator[S3Server]:
    """The gateway on empty storage; its process may be killed, and what was stored outlives it.

    Raises Missing: Ceph is not installed.
    """
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise Missing(f"Ceph has no {absent[0]} here; install ceph-mon, ceph-osd and radosgw")
    access, secret, endpoint = "tlm-tests", "tlm-tests-secret", f"{LOCAL}:{free_port()}"
    with fresh_folder() as here, ExitStack() as stack:
        fsid, monitor = str(uuid.uuid4()), f"[v2:{LOCAL}:{free_port()}]"
        settings = here / "ceph.conf"
        settings.write_text(SETTINGS.format(fsid=fsid, monitor=monitor, here=here, endpoint=endpoint))
        _storage(stack, here, settings, fsid, monitor)
        who = ("--uid", "tests", "--display-name", "tests", "--access-key", access, "--secret", secret)
        _do(settings, "radosgw-admin", "user", "create", *who)
        command = ["radosgw", "-n", "client.rgw", "-f"]
        url = f"http://{endpoint}"
        with running(Server(command, _environment(settings), here, url, url)) as server:
            yield S3Server(url, access, secret, server)


def _storage(stack: ExitStack, here: Path, settings: Path, fsid: str, monitor: str) -> None:
    """One monitor and one disk, which end with `stack`."""
    (here / "osd").mkdir()
    disk = str(uuid.uuid4())
    _do(settings, "monmaptool", "--create", "--addv", "a", monitor, "--fsid", fsid, str(here / "map"))
    _do(settings, "ceph-mon", "-i", "a", "--mkfs", "--monmap", str(here / "map"))
    _begin(stack, settings, "ceph-mon", "-i", "a", "-f")
    _do(settings, "ceph", "osd", "new", disk)
    _do(settings, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
    _begin(stack, settings, "ceph-osd", "-i", "0", "-f")


def _do(settings: Path, *command: str) -> None:
    done = subprocess.run(command, env=_environment(settings), capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")


def _begin(stack: ExitStack, settings: Path, *command: str) -> None:
    with (settings.parent / f"{command[0]}.out").open("wb") as output:
        process = subprocess.Popen(
            command, env=_environment(settings), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)


def _environment(settings: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(settings.parent), "CEPH_CONF": str(settings)}
