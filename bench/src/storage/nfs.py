# Serves a folder by nfs-ganesha, with a network, mounts and processes of its own, and works with it
# over NFS each time it reads a line with FILES MEGABYTES: PLACE EXPORTED. Uses the kernel's client
# if there is one, else libnfs. The definitions of drive.py are put before this file.
import ctypes, socket, subprocess

PORT, MOUNT_PORT, START_S = 20490, 20491, 30
P, N, S = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
place, exported = sys.argv[1], sys.argv[2]

CONFIGURATION = f"""
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {PORT}; MNT_Port = {MOUNT_PORT}; Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; }}
EXPORT {{ Export_Id = 1; Path = {exported}; Pseudo = /bench; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
          Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = FATAL; }}
"""


class Libnfs:
    """A folder through libnfs: NFS 3 calls, without a cache of its own."""

    def __init__(self):
        self.lib = lib = ctypes.CDLL("libnfs.so.13")
        lib.nfs_init_context.restype = P
        lib.nfs_get_error.restype, lib.nfs_get_error.argtypes = S, [P]
        lib.nfs_parse_url_dir.restype, lib.nfs_parse_url_dir.argtypes = P, [P, S]
        lib.nfs_mount.argtypes = [P, S, S]
        lib.nfs_open2.argtypes = [P, S, ctypes.c_int, ctypes.c_int, ctypes.POINTER(P)]
        lib.nfs_pwrite.argtypes = lib.nfs_pread.argtypes = [P, P, N, N, S]
        lib.nfs_stat64.argtypes = [P, S, ctypes.POINTER(N)]
        for name in ("fsync", "close"):
            getattr(lib, f"nfs_{name}").argtypes = [P, P]
        for name in ("mkdir", "rmdir", "unlink"):
            getattr(lib, f"nfs_{name}").argtypes = [P, S]
        self.context = lib.nfs_init_context()
        url = f"nfs://127.0.0.1{exported}/x?version=3&nfsport={PORT}&mountport={MOUNT_PORT}"
        assert lib.nfs_parse_url_dir(self.context, url.encode()), self.error()
        self.call("mount", b"127.0.0.1", exported.encode())
        self.buffer = ctypes.create_string_buffer(BLOCK)

    def error(self):
        return self.lib.nfs_get_error(self.context)

    def call(self, name, *arguments):
        done = getattr(self.lib, f"nfs_{name}")(self.context, *arguments)
        assert done >= 0, (name, done, self.error())
        return done

    def open(self, name, new):
        file = P()
        self.call("open2", name.encode(), os.O_RDWR | (os.O_CREAT if new else 0), 0o644, ctypes.byref(file))
        return file

    def pwrite(self, file, data, at):
        return self.call("pwrite", file, at, len(data), data)

    def pread(self, file, count, at):
        return ctypes.string_at(self.buffer, self.call("pread", file, at, count, self.buffer))

    def size(self, name):
        # struct nfs_stat_64: the eighth number is the size.
        stat = (N * 32)()
        self.call("stat64", name.encode(), stat)
        return stat[7]

    def fsync(self, file):
        self.call("fsync", file)

    def close(self, file):
        self.call("close", file)

    def mkdir(self, name):
        self.call("mkdir", name.encode())

    def unlink(self, name):
        self.call("unlink", name.encode())

    def rmdir(self, name):
        self.call("rmdir", name.encode())


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)


def start(*command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def await_port(port, server):
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def client():
    with open("/proc/filesystems") as known:
        if "\tnfs\n" not in known.read():
            return "libnfs", Libnfs()
    mounted = place + "/mounted"
    os.mkdir(mounted)
    options = f"vers=3,proto=tcp,nolock,port={PORT},mountport={MOUNT_PORT},mountproto=tcp"
    run("mount", "-t", "nfs", "-o", options, f"127.0.0.1:{exported}", mounted)
    return "the kernel", Folder(mounted)


run("ip", "link", "set", "lo", "up")
run("mount", "-t", "tmpfs", "tmpfs", "/run")
os.mkdir("/run/rpcbind")
# Accept requests from unprivileged ports too: libnfs uses any.
portmap = start("rpcbind", "-f", "-i")
await_port(111, portmap)
with open(place + "/ganesha.conf", "w") as file:
    file.write(CONFIGURATION)
ganesha = start("ganesha.nfsd", "-F", "-f", place + "/ganesha.conf", "-L", place + "/ganesha.log", "-p", place + "/ganesha.pid")
await_port(PORT, ganesha)
kind, folder = client()
print(kind, flush=True)
for line in sys.stdin:
    files, megabytes = line.split()
    print(json.dumps(measure(folder, int(files), int(megabytes))), flush=True)
